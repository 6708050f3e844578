//! Checks that the relative links of the repository's Markdown files lead to something that exists.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::root;
use crate::shell::tracked;

/// Returns whether each relative link of each Markdown file leads to a file or a folder, and its fragment to
/// a heading. Prints the links that do not.
pub fn check() -> Result<bool> {
    let mut good = true;
    for page in tracked(&["*.md"])? {
        let text = fs::read_to_string(&page)?;
        for link in links(&text).filter(|link| !leads_somewhere(&page, link)) {
            let name = page.strip_prefix(root()).unwrap_or(&page);
            println!("{}: the link {link} leads nowhere", name.display());
            good = false;
        }
    }
    Ok(good)
}

/// Returns the targets of the links and pictures of a page, without those that name a scheme.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets =
        prose(text).flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains(':'))
}

/// Returns the lines of a page that are not in a fenced block.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.to_owned() } else { page.with_file_name("").join(path) };
    if fragment.is_empty() {
        return target.exists();
    }
    let text = fs::read_to_string(&target).unwrap_or_default();
    prose(&text).filter(|line| line.starts_with('#')).any(|line| slug(line) == fragment)
}

/// Returns the fragment by which a heading is linked: its letters and digits in lower case, with a hyphen for
/// each space.
fn slug(heading: &str) -> String {
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_code_and_to_other_hosts_do_not_count() {
        let text = "[a](b.md) and ![c](d.svg#e)\n```\n[f](g.md)\n```\n[h](https://example.org) [i](#j)";
        assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "d.svg#e", "#j"]);
    }

    #[test]
    fn a_link_leads_to_a_file_a_folder_or_a_heading() {
        let page = root().join("docs/README.md");
        for good in ["../README.md", "design", "design/", "../README.md#license"] {
            assert!(leads_somewhere(&page, good), "{good}");
        }
        for bad in ["nothing.md", "../README.md#nothing", "nothing/"] {
            assert!(!leads_somewhere(&page, bad), "{bad}");
        }
    }

    #[test]
    fn a_heading_becomes_a_fragment() {
        assert_eq!(slug("## A shared page: RadixVM, figure 8"), "a-shared-page-radixvm-figure-8");
        assert_eq!(slug("# `vm` orderings"), "vm-orderings");
    }
}
