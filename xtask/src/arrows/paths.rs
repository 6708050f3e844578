//! Finds the paths in a source file that lead to modules of the same crate: those that begin with `crate`,
//! `super`, `self`, or the name of a child module. It reads tokens, not all of Rust, and skips comments,
//! strings and characters.

/// A path from the crate's root, and the line on which it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    pub path: Vec<String>,
    pub line: usize,
    /// Whether a `use` brings the path's last name into the module.
    pub is_import: bool,
}

/// Returns the paths in the file of `module`.
pub fn named(module: &[String], text: &str) -> Vec<Named> {
    let tokens = tokens(text);
    let children = children(&tokens);
    let mut reader = Reader { tokens: &tokens, at: 0, importing: false, found: Vec::new() };
    let mut here = module.to_vec();
    // Depths of braces at which inline modules began.
    let (mut depth, mut inline) = (0, Vec::new());
    while let Some(token) = reader.peek(0) {
        let starts = reader.peek(1) == Some("::") && (reader.at == 0 || tokens[reader.at - 1].0 != "::");
        match token {
            "mod" if reader.peek(2) == Some("{") => {
                here.push(reader.peek(1).unwrap_or_default().to_owned());
                inline.push(depth);
                depth += 1;
                reader.at += 3;
            }
            "use" | ";" => {
                reader.importing = token == "use";
                reader.at += 1;
            }
            "{" => {
                depth += 1;
                reader.at += 1;
            }
            "}" => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                    here.pop();
                }
                reader.at += 1;
            }
            "crate" | "self" | "super" if starts => reader.rest(&here),
            name if starts && inline.is_empty() && children.contains(&name) => reader.rest(&here),
            _ => reader.at += 1,
        }
    }
    reader.found
}

/// Returns the names of the modules that the file declares and that have files of their own.
fn children<'t>(tokens: &[(&'t str, usize)]) -> Vec<&'t str> {
    let declared =
        |window: &[(&'t str, usize)]| (window[0].0 == "mod" && window[2].0 == ";").then_some(window[1].0);
    tokens.windows(3).filter_map(declared).collect()
}

struct Reader<'t> {
    tokens: &'t [(&'t str, usize)],
    at: usize,
    /// Whether the reader is between `use` and its semicolon.
    importing: bool,
    found: Vec<Named>,
}

impl<'t> Reader<'t> {
    fn peek(&self, ahead: usize) -> Option<&'t str> {
        self.tokens.get(self.at + ahead).map(|token| token.0)
    }

    /// Reads a path, or a tree of them, that continues `from`.
    fn rest(&mut self, from: &[String]) {
        let mut path = from.to_vec();
        let line = self.tokens[self.at].1;
        loop {
            match self.peek(0) {
                Some("{") => return self.branches(&path),
                Some("crate") => path.clear(),
                Some("super") => drop(path.pop()),
                Some("self" | "*") => {}
                Some(name) if is_name(name) => path.push(name.to_owned()),
                _ => break,
            }
            self.at += 1;
            if self.peek(0) != Some("::") {
                break;
            }
            self.at += 1;
        }
        self.found.push(Named { path, line, is_import: self.importing });
    }

    /// Reads the paths in braces that continue `from`.
    fn branches(&mut self, from: &[String]) {
        self.at += 1;
        while let Some(token) = self.peek(0) {
            match token {
                "}" => {
                    self.at += 1;
                    return;
                }
                "," => self.at += 1,
                "as" => self.at += 2,
                _ => {
                    let before = self.at;
                    self.rest(from);
                    self.at = self.at.max(before + 1);
                }
            }
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits the text into names, `::` and single characters, each with its line.
fn tokens(text: &str) -> Vec<(&str, usize)> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let (length, is_code) = token(rest, first);
        let (token, behind) = rest.split_at(length);
        if is_code {
            tokens.push((token, line));
        }
        line += token.matches('\n').count();
        rest = behind;
    }
    tokens
}

/// Returns the length of the first token, and whether it matters.
fn token(text: &str, first: char) -> (usize, bool) {
    let until =
        |end: &str, from: usize| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    match first {
        _ if text.starts_with("//") => (until("\n", 0), false),
        _ if text.starts_with("/*") => (until("*/", 2), false),
        _ if text.starts_with("r#\"") => (until("\"#", 3), false),
        '"' => (string(text), false),
        '\'' => (character(text), false),
        _ if text.starts_with("::") => (2, true),
        c if c.is_alphanumeric() || c == '_' => {
            (text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len()), true)
        }
        c => (c.len_utf8(), !c.is_whitespace()),
    }
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|&(_, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Returns the length of a character, or of the mark of a lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let behind = at + escaped.len_utf8();
            text[behind..].find('\'').map_or(text.len(), |end| behind + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<(String, usize)> {
        let module = ["a".to_owned(), "b".to_owned()];
        named(&module, text).into_iter().map(|Named { path, line, .. }| (path.join("::"), line)).collect()
    }

    fn only(path: &str) -> Vec<(String, usize)> {
        vec![(path.to_owned(), 1)]
    }

    #[test]
    fn paths_begin_at_the_root_the_parent_the_module_or_a_child() {
        assert_eq!(paths("use crate::x::Y;"), only("x::Y"));
        assert_eq!(paths("use super::x::Y;"), only("a::x::Y"));
        assert_eq!(paths("use super::super::x;"), only("x"));
        assert_eq!(paths("use self::x::Y;"), only("a::b::x::Y"));
        assert_eq!(paths("mod x; pub use x::Y;"), only("a::b::x::Y"));
        assert_eq!(paths("use x::Y;"), []);
        assert_eq!(paths("let y = core::crate_like::z(self.x);"), []);
        assert_eq!(paths("let y = crate::x::f::<u8>(0) + 1;"), only("x::f"));
    }

    #[test]
    fn trees_are_spread() {
        let text = "use crate::{\n    self as kernel,\n    x::{self, Y as Z, *},\n    w,\n};\nfn f() {}";
        let expected = [("", 2), ("x", 3), ("x::Y", 3), ("x", 3), ("w", 4)];
        assert_eq!(paths(text), expected.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn names_that_are_brought_in_are_told_from_others() {
        let text = "mod x;\npub use x::{A, b::C};\nfn f() -> x::D { x::e() }\nuse x::F;";
        let found = named(&[], text);
        let imports = found.iter().filter(|found| found.is_import).map(|found| found.path.join("::"));
        assert_eq!(imports.collect::<Vec<_>>(), ["x::A", "x::b::C", "x::F"]);
        assert_eq!(found.len(), 5);
    }

    #[test]
    fn the_parent_of_an_inline_module_is_the_file() {
        assert_eq!(paths("mod tests { use super::*; fn f() { {} } } use super::y;"), {
            [("a::b", 1), ("a::y", 1)].map(|(path, line)| (path.to_owned(), line))
        });
    }

    #[test]
    fn comments_strings_and_characters_are_left_out() {
        let text = "// crate::x\n/* crate::x */ \"crate::x \\\" crate::x\" '\"' 'a '\\'' r#\"crate::x\"#";
        assert_eq!(paths(text), []);
        assert_eq!(paths("&'a crate::x"), only("x"));
    }
}
