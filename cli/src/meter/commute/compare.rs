//! Two runs side by side: the tests that became free of conflicts, and those that are not any more.

use std::collections::BTreeMap;

use super::Outcome;

/// Formats the tests whose outcomes differ.
pub fn compare(before: &[Outcome], after: &[Outcome]) -> String {
    let old: BTreeMap<_, _> =
        before.iter().map(|outcome| ((&outcome.system, &outcome.key), outcome)).collect();
    let mut text = String::new();
    let (mut better, mut worse, mut both) = (0, 0, 0);
    for new in after {
        let Some(old) = old.get(&(&new.system, &new.key)) else { continue };
        both += 1;
        let word = match (old.is_free(), new.is_free()) {
            (false, true) => "free",
            (true, false) => "NOT free",
            _ => "",
        };
        better += usize::from(word == "free");
        worse += usize::from(word == "NOT free");
        if !word.is_empty() {
            let [before, after] = [old, new].map(found);
            text += &format!("{word:8}  {}  {}  {before} → {after}\n", new.system, new.key);
        }
        if old.difference.is_some() != new.difference.is_some() {
            let what = new.difference.as_deref().unwrap_or("agrees with the model");
            text += &format!("result    {}  {}  {what}\n", new.system, new.key);
        }
    }
    text + &format!("{both} tests in both: {better} became free of conflicts, {worse} are not any more\n")
}

/// Formats what the calls of a test share.
fn found(outcome: &Outcome) -> String {
    match outcome.interrupts {
        0 => outcome.conflicts.to_string(),
        interrupts => format!("{} and {interrupts} interrupts", outcome.conflicts),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    #[test]
    fn changes_are_listed_by_key_and_system() {
        let calls = ["stat", "stat"];
        let before = [outcome("a", calls, "linux", 0), outcome("b", calls, "linux", 3)];
        let after = [
            outcome("a", calls, "linux", 2),
            outcome("b", calls, "linux", 0),
            outcome("c", calls, "linux", 0),
        ];
        let text = compare(&before, &after);
        let interrupted = Outcome { interrupts: 1, ..outcome("a", calls, "linux", 0) };
        let more = compare(&before, &[interrupted]);
        assert!(more.contains("NOT free  linux  a  0 → 0 and 1 interrupts"), "{more}");
        assert!(
            text.contains("NOT free  linux  a  0 → 2") && text.contains("free      linux  b  3 → 0"),
            "{text}"
        );
        assert!(
            text.ends_with("2 tests in both: 1 became free of conflicts, 1 are not any more\n"),
            "{text}"
        );
    }
}
