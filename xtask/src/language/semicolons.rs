//! The share of semicolons in the sentences of each folder: a sentence says one thing.

use std::collections::BTreeMap;

use super::paragraphs::Paragraph;

/// The largest number of semicolons per 100 sentences.
const MOST: usize = 2;
/// The number of sentences below which a folder is too small for a share.
const FEW: usize = 50;

/// The sentences of each folder, and the lines of its semicolons.
#[derive(Default)]
pub struct Semicolons(BTreeMap<String, (usize, Vec<String>)>);

impl Semicolons {
    /// Counts the paragraphs of a file.
    pub fn add(&mut self, name: &str, paragraphs: &[Paragraph]) {
        let (sentences, lines) = self.0.entry(folder(name)).or_default();
        for paragraph in paragraphs {
            *sentences += paragraph.sentences();
            lines.extend(paragraph.semicolons().map(|line| format!("{name}:{line}")));
        }
    }

    /// Returns the lines of the semicolons in the folders that have too many.
    pub fn faults(self) -> Vec<String> {
        let dense = self
            .0
            .into_iter()
            .filter(|(_, (sentences, lines))| lines.len() * 100 > MOST * (*sentences).max(FEW));
        dense
            .flat_map(|(folder, (sentences, lines))| {
                let count = lines.len();
                let fault = move |line| {
                    format!("{line}: a semicolon, of {count} in the {sentences} sentences of {folder}")
                };
                lines.into_iter().map(fault)
            })
            .collect()
    }
}

/// Returns the folder that a file counts for: its first two parts.
fn folder(name: &str) -> String {
    name.split('/').take(2).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::paragraphs::of_rust;

    fn faults(text: &str) -> Vec<String> {
        let mut semicolons = Semicolons::default();
        semicolons.add("crates/x/src/lib.rs", &of_rust(text));
        semicolons.faults()
    }

    #[test]
    fn a_folder_may_have_a_few() {
        let sentences = "// A sentence.\n".repeat(100);
        assert_eq!(faults(&format!("{sentences}// One; two; three.\n")), Vec::<String>::new());
        assert_eq!(faults(&format!("{sentences}// One; two;\n// three; four.\n")).len(), 3);
        assert!(
            faults("// One; two.\n// And; more.\n")[0]
                .starts_with("crates/x/src/lib.rs:1: a semicolon, of 2")
        );
    }
}
