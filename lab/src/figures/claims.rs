//! What a paper says in numbers, and how ours are computed from curves.

use serde::Serialize;

use super::curve::Curve;

/// A number from a paper's text, and ours beside it.
pub struct Claim {
    /// What is compared.
    pub what: &'static str,
    /// The section.
    pub place: &'static str,
    /// In the paper's words, as short as can be.
    pub paper: &'static str,
    /// Ours.
    pub ours: Ours,
}

/// A claim in a line.
pub const fn claim(what: &'static str, place: &'static str, paper: &'static str, ours: Ours) -> Claim {
    Claim { what, place, paper, ours }
}

/// A number from the curves of one panel.
#[derive(Clone, Copy)]
pub enum Ours {
    /// The value there, of the value at 1.
    Speedup(&'static str, u16),
    /// The first's value of the second's, there.
    Ratio(&'static str, &'static str, u16),
    /// The same where most CPUs were counted.
    LastRatio(&'static str, &'static str),
    /// The value there.
    Value(&'static str, u16),
    /// Interrupts received a round, in the median where most CPUs were counted.
    Targets(&'static str),
    /// The same of lines transferred.
    Transfers(&'static str),
}

/// A claim with our number.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// What is compared.
    pub what: &'static str,
    /// The section.
    pub place: &'static str,
    /// The paper's.
    pub paper: &'static str,
    /// Ours; null where this build or run has not what it takes.
    pub ours: Option<f64>,
}

impl Claim {
    /// Puts our number beside it.
    pub fn compare(&self, curves: &[Curve]) -> Compared {
        let &Claim { what, place, paper, ours } = self;
        Compared { what, place, paper, ours: ours.value(curves).filter(|value| value.is_finite()) }
    }
}

impl Ours {
    /// The series that it names.
    #[cfg(test)]
    pub fn labels(self) -> Vec<&'static str> {
        match self {
            Ours::Ratio(first, second, _) | Ours::LastRatio(first, second) => vec![first, second],
            Ours::Speedup(of, _) | Ours::Value(of, _) | Ours::Targets(of) | Ours::Transfers(of) => vec![of],
        }
    }

    fn value(self, curves: &[Curve]) -> Option<f64> {
        let find = |label| curves.iter().find(|curve| curve.label == label);
        match self {
            Ours::Speedup(of, at) => Some(find(of)?.at(at)? / find(of)?.at(1)?),
            Ours::Ratio(first, second, at) => Some(find(first)?.at(at)? / find(second)?.at(at)?),
            Ours::LastRatio(first, second) => Some(find(first)?.last()? / find(second)?.last()?),
            Ours::Value(of, at) => find(of)?.at(at),
            Ours::Targets(of) => find(of)?.counts.last().map(|row| row.ipi_targets.median),
            Ours::Transfers(of) => find(of)?.counts.last().map(|row| row.transfers.median),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::curve;
    use super::*;

    #[test]
    fn numbers_come_from_the_curves_they_name() {
        let curves = [curve("a", &[(1.0, 10.0), (80.0, 400.0)]), curve("b", &[(1.0, 5.0), (80.0, 4.0)])];
        assert_eq!(Ours::Speedup("a", 80).value(&curves), Some(40.0));
        assert_eq!(Ours::Ratio("a", "b", 1).value(&curves), Some(2.0));
        assert_eq!(Ours::LastRatio("a", "b").value(&curves), Some(100.0));
        assert_eq!(Ours::Value("b", 80).value(&curves), Some(4.0));
    }

    #[test]
    fn what_was_not_measured_has_no_number() {
        let curves = [curve("a", &[(1.0, 10.0)])];
        assert_eq!(Ours::Speedup("a", 80).value(&curves), None);
        assert_eq!(Ours::Ratio("a", "b", 1).value(&curves), None);
        assert_eq!(Ours::Targets("a").value(&curves), None);
    }
}
