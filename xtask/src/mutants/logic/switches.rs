//! Puts all mutants of a file into one text, each behind a switch (mutant schemata: Untch, Offutt, Harrold,
//! ISSTA'93). So a crate is built once for all its mutants, and a run of its tests chooses one of them.
//!
//! `a + b` becomes `(if crate::mutant::is(7) { (a) - (b) } else { (a + b) })`. A function returns the value
//! of a mutant before its first statement, and an arm of a `match` gets a guard.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use anyhow::{Result, anyhow};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, BinOp, Block, Expr, ExprBinary, ExprUnary, Signature};

use super::listing::{Mutant, Place};

/// The module that the text of a crate's root gets: the switch.
pub const MODULE: &str = r#"
mod mutant {
    extern crate std;
    /// Returns whether the variable `MUTANT` names this mutant.
    #[inline(never)]
    pub fn is(id: u32) -> bool {
        static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
        let chosen = || std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        *CHOSEN.get_or_init(chosen) == id
    }
}
"#;

/// A file with switches.
pub struct Switched {
    pub text: String,
    /// The parts of the text that belong to mutants.
    regions: Vec<(Range<usize>, Vec<u32>)>,
}

impl Switched {
    /// Makes the text for those of `mutants`, all of this file, that can be behind a switch. The functions
    /// whose names are in `constant` stay `const`, so theirs cannot.
    pub fn new(text: &str, mutants: &[&Mutant], constant: &BTreeSet<String>) -> Result<Self> {
        let file = syn::parse_file(text).map_err(|error| anyhow!("{error}"))?;
        let mut finder = Finder { mutants: by_place(mutants), constant, edits: Vec::new() };
        finder.visit_file(&file);
        let mut edits = finder.edits;
        edits.sort_by_key(|edit| (edit.range.start, usize::MAX - edit.range.end));
        let mut writer = Writer { text, out: String::new(), regions: Vec::new() };
        writer.write(0..text.len(), &edits);
        Ok(Switched { text: writer.out, regions: writer.regions })
    }

    /// Returns the mutants behind switches.
    pub fn mutants(&self) -> BTreeSet<u32> {
        self.regions.iter().flat_map(|(_, mutants)| mutants).copied().collect()
    }

    /// Returns the mutants of the smallest region that contains these bytes of the text.
    pub fn mutants_at(&self, bytes: &Range<usize>) -> &[u32] {
        let around = |region: &&(Range<usize>, _)| region.0.start <= bytes.start && bytes.end <= region.0.end;
        let smallest = self.regions.iter().filter(around).min_by_key(|(region, _)| region.len());
        smallest.map_or(&[], |(_, mutants)| mutants)
    }
}

/// The mutants that begin at a place, by their genre.
type ByPlace<'a> = HashMap<(&'a str, Place), Vec<&'a Mutant>>;

fn by_place<'a>(mutants: &[&'a Mutant]) -> ByPlace<'a> {
    let mut places = ByPlace::new();
    for mutant in mutants {
        places.entry((&mutant.genre, mutant.start)).or_default().push(mutant);
    }
    places
}

/// A part of the file that gets switches.
struct Edit<'a> {
    range: Range<usize>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    /// Text is left out: the `const` of a function.
    Remove,
    /// A function may return early. The range is empty.
    Return(Vec<&'a Mutant>),
    /// An operator between two expressions.
    Binary { left: Range<usize>, right: Range<usize>, mutants: Vec<&'a Mutant> },
    /// An operator before an expression may be left out.
    Unary { operand: Range<usize>, id: u32 },
    /// An arm without a guard may match nothing. The range is empty, after the pattern.
    Arm(u32),
    /// The arms of a `match`: the compiler's error about a case without an arm names the `match`.
    Match(Vec<u32>),
    /// A guard may be true always, or never.
    Guard { always: Vec<u32>, never: Vec<u32> },
}

/// Finds the places.
struct Finder<'a> {
    mutants: ByPlace<'a>,
    constant: &'a BTreeSet<String>,
    edits: Vec<Edit<'a>>,
}

impl<'a> Finder<'a> {
    fn at(&self, genre: &'static str, span: Span) -> Vec<&'a Mutant> {
        let start = span.start();
        self.mutants.get(&(genre, (start.line, start.column + 1))).cloned().unwrap_or_default()
    }

    fn add(&mut self, range: Range<usize>, kind: Kind<'a>) {
        self.edits.push(Edit { range, kind });
    }

    /// Visits a function, unless it must stay `const`.
    fn function(&mut self, signature: &Signature, block: &Block) {
        if let Some(word) = signature.constness {
            if self.constant.contains(&signature.ident.to_string()) {
                return;
            }
            self.add(word.span().byte_range(), Kind::Remove);
        }
        if let Some(first) = block.stmts.first() {
            let mutants = self.at("FnValue", first.span());
            let begin = block.brace_token.span.open().byte_range().end;
            if !mutants.is_empty() {
                self.add(begin..begin, Kind::Return(mutants));
            }
        }
        self.visit_block(block);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, &function.block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
    }

    // Expressions that the compiler evaluates get no switches.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let mutants = self.at("BinaryOperator", binary.op.span());
        let (left, right) = (binary.left.span().byte_range(), binary.right.span().byte_range());
        let has_let = matches!(binary.op, BinOp::And(_)) && (is_let(&binary.left) || is_let(&binary.right));
        if !mutants.is_empty() && !has_let {
            self.add(left.start..right.end, Kind::Binary { left, right, mutants });
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast ExprUnary) {
        let operand = unary.expr.span().byte_range();
        if let [mutant] = self.at("UnaryOperator", unary.op.span())[..] {
            let range = unary.op.span().byte_range().start..operand.end;
            self.add(range, Kind::Unary { operand, id: mutant.id });
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        let removed = expression.arms.iter().flat_map(|arm| self.at("MatchArm", arm.span()));
        let removed: Vec<u32> = removed.map(|mutant| mutant.id).collect();
        if !removed.is_empty() {
            self.add(expression.span().byte_range(), Kind::Match(removed));
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        let removed = self.at("MatchArm", arm.span());
        match &arm.guard {
            Some((_, guard)) => {
                let mutants = self.at("MatchArmGuard", guard.span());
                let (always, never): (Vec<_>, Vec<_>) =
                    mutants.into_iter().partition(|mutant| mutant.replacement == "true");
                let ids = |mutants: Vec<&Mutant>| mutants.iter().map(|mutant| mutant.id).collect::<Vec<_>>();
                let never = ids([never, removed].concat());
                self.add(guard.span().byte_range(), Kind::Guard { always: ids(always), never });
            }
            None => {
                let end = arm.pat.span().byte_range().end;
                removed.iter().for_each(|mutant| self.add(end..end, Kind::Arm(mutant.id)));
            }
        }
        visit::visit_arm(self, arm);
    }
}

/// Returns whether an operand of `&&` is a `let`, which stands in no parentheses.
fn is_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => is_let(&binary.left) || is_let(&binary.right),
        _ => false,
    }
}

/// Writes the text with the switches.
struct Writer<'a> {
    text: &'a str,
    out: String,
    regions: Vec<(Range<usize>, Vec<u32>)>,
}

impl Writer<'_> {
    /// Writes a part of the file, which contains `edits`.
    fn write(&mut self, part: Range<usize>, edits: &[Edit<'_>]) {
        let (mut at, mut rest) = (part.start, edits);
        while let Some((edit, after)) = rest.split_first() {
            let end = edit.range.end;
            let inside = after.iter().take_while(|next| next.range.start < end).count();
            self.copy(at..edit.range.start);
            let start = self.out.len();
            let mutants = self.edit(edit, &after[..inside]);
            self.region(start, mutants);
            at = end;
            rest = &after[inside..];
        }
        self.copy(at..part.end);
    }

    fn copy(&mut self, part: Range<usize>) {
        self.out += &self.text[part];
    }

    fn region(&mut self, start: usize, mutants: Vec<u32>) {
        if !mutants.is_empty() {
            self.regions.push((start..self.out.len(), mutants));
        }
    }

    /// Writes an edit, which contains the edits `inside`, and returns its mutants.
    fn edit(&mut self, edit: &Edit<'_>, inside: &[Edit<'_>]) -> Vec<u32> {
        match &edit.kind {
            Kind::Remove => Vec::new(),
            Kind::Return(mutants) => self.early_returns(mutants),
            Kind::Binary { left, right, mutants } => {
                self.out += "(";
                for mutant in mutants {
                    let start = self.out.len();
                    self.out += &format!("if crate::mutant::is({}) {{ (", mutant.id);
                    self.copy(left.clone());
                    self.out += &format!(") {} (", mutant.replacement);
                    self.copy(right.clone());
                    self.out += ") } else ";
                    self.region(start, vec![mutant.id]);
                }
                self.unchanged(edit, inside);
                mutants.iter().map(|mutant| mutant.id).collect()
            }
            Kind::Unary { operand, id } => {
                self.out += &format!("(if crate::mutant::is({id}) {{ (");
                self.copy(operand.clone());
                self.out += ") } else ";
                self.unchanged(edit, inside);
                vec![*id]
            }
            Kind::Arm(id) => {
                self.out += &format!(" if !crate::mutant::is({id})");
                vec![*id]
            }
            Kind::Match(mutants) => {
                self.write(edit.range.clone(), inside);
                mutants.clone()
            }
            Kind::Guard { always, never } => {
                always.iter().for_each(|id| self.out += &format!("crate::mutant::is({id}) || "));
                never.iter().for_each(|id| self.out += &format!("!crate::mutant::is({id}) && "));
                self.out += "(";
                self.write(edit.range.clone(), inside);
                self.out += ")";
                [&always[..], never].concat()
            }
        }
    }

    fn early_returns(&mut self, mutants: &[&Mutant]) -> Vec<u32> {
        for mutant in mutants {
            let start = self.out.len();
            self.out += &format!(" if crate::mutant::is({}) {{ return {}; }}", mutant.id, mutant.replacement);
            self.region(start, vec![mutant.id]);
        }
        mutants.iter().map(|mutant| mutant.id).collect()
    }

    /// Writes the expression as it is, with switches inside.
    fn unchanged(&mut self, edit: &Edit<'_>, inside: &[Edit<'_>]) {
        self.out += "{ (";
        self.write(edit.range.clone(), inside);
        self.out += ") })";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text with a mutant of this genre, which begins where `at` does.
    fn switched(text: &str, genre: &str, at: &str, replacement: &str, constant: &[&str]) -> Switched {
        let before = &text[..text.find(at).unwrap()];
        let start =
            (before.matches('\n').count() + 1, before.chars().rev().take_while(|&c| c != '\n').count() + 1);
        let mutant = Mutant {
            id: 7,
            file: "f.rs".into(),
            name: String::new(),
            genre: genre.to_owned(),
            replacement: replacement.to_owned(),
            start,
            end: start,
        };
        let constant = constant.iter().map(|&name| name.to_owned()).collect();
        Switched::new(text, &[&mutant], &constant).unwrap()
    }

    #[test]
    fn an_operator_has_a_switch_around_it() {
        let text = "fn f(a: u8) -> u8 {\n    a + 1\n}\n";
        let file = switched(text, "BinaryOperator", "+", "-", &[]);
        let whole = "(if crate::mutant::is(7) { (a) - (1) } else { (a + 1) })";
        assert_eq!(file.text, text.replace("a + 1", whole));
        let at = file.text.find("(a) -").unwrap();
        assert_eq!(file.mutants_at(&(at..at + 1)), [7]);
        assert_eq!((file.mutants_at(&(0..2)), file.mutants().len()), (&[][..], 1));
        let file = switched("fn f(a: bool) -> bool {\n    !a\n}\n", "UnaryOperator", "!a", "", &[]);
        assert_eq!(
            file.text,
            "fn f(a: bool) -> bool {\n    (if crate::mutant::is(7) { (a) } else { (!a) })\n}\n"
        );
    }

    #[test]
    fn a_function_returns_early_and_is_no_longer_const() {
        let text = "const fn f() -> u8 {\n    1\n}\n";
        let file = switched(text, "FnValue", "1", "0", &[]);
        assert_eq!(file.text, " fn f() -> u8 { if crate::mutant::is(7) { return 0; }\n    1\n}\n");
        let file = switched(text, "FnValue", "1", "0", &["f"]);
        assert_eq!((&*file.text, file.mutants().len()), (text, 0));
    }

    #[test]
    fn an_arm_and_a_guard_may_match_nothing() {
        let text = "fn f(a: u8) -> u8 {\n    match a {\n        1 => 2,\n        _ if a > 2 => 3,\n        _ => 4,\n    }\n}\n";
        let file = switched(text, "MatchArm", "1 => 2", "", &[]);
        assert_eq!(
            file.text,
            text.replace("1 => 2", "1 if !crate::mutant::is(7) => 2").replace("a > 2", "(a > 2)")
        );
        let scrutinee = file.text.find("a {").unwrap();
        assert_eq!(file.mutants_at(&(scrutinee..scrutinee + 1)), [7]);
        let file = switched(text, "MatchArmGuard", "a > 2", "true", &[]);
        assert_eq!(file.text, text.replace("a > 2", "crate::mutant::is(7) || (a > 2)"));
    }

    #[test]
    fn a_let_has_no_switch_around_it() {
        let text =
            "fn f(a: Option<u8>) -> bool {\n    if let Some(1) = a && true { true } else { false }\n}\n";
        let file = switched(text, "BinaryOperator", "&&", "||", &[]);
        assert_eq!((&*file.text, file.mutants().len()), (text, 0));
    }
}
