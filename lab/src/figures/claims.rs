//! Claims of a paper in numbers, and our numbers for them, which are computed from curves.

use serde::Serialize;

use super::curve::Curve;

/// A claim of a paper's text, with our number for it.
#[derive(Clone, Copy)]
pub struct Claim {
    /// The compared quantity.
    pub what: &'static str,
    /// The section.
    pub place: &'static str,
    /// In the paper's words, as short as can be.
    pub paper: &'static str,
    /// The paper's number.
    pub says: Says,
    /// Our number.
    pub ours: Ours,
    /// The reason why ours falls short, if it does.
    pub why: &'static str,
    /// Set if the number is in the text and may be drawn. Otherwise it follows from the words.
    stated: bool,
}

/// Returns a claim.
pub const fn claim(
    what: &'static str,
    place: &'static str,
    paper: &'static str,
    says: Says,
    ours: Ours,
) -> Claim {
    Claim { what, place, paper, says, ours, why: "", stated: true }
}

/// A paper's statement about a number.
#[derive(Clone, Copy)]
pub enum Says {
    /// It is this.
    About(f64),
    /// It is as good as this, or larger.
    AtLeast(f64),
    /// It is as good as this, or smaller.
    AtMost(f64),
    /// It is above 1, by an amount that the paper does not give.
    More,
    /// It is below 1, by an amount that the paper does not give.
    Less,
    /// There are none.
    Nothing,
}

impl Says {
    /// Returns the number in the paper's text.
    fn number(self) -> Option<f64> {
        match self {
            Says::About(number) | Says::AtLeast(number) | Says::AtMost(number) => Some(number),
            Says::More | Says::Less | Says::Nothing => None,
        }
    }

    /// Returns the factor by which ours falls short, or 1 if it does not.
    fn short(self, ours: f64) -> f64 {
        let factor = match self {
            Says::About(number) => (ours / number).max(number / ours),
            Says::AtLeast(number) => number / ours,
            Says::AtMost(number) => ours / number,
            Says::More => 1.0 / ours,
            Says::Less => ours,
            // One line or interrupt in a hundred rounds counts as none.
            Says::Nothing => 0.99 + ours,
        };
        factor.max(1.0)
    }
}

/// A number from the curves of one panel.
#[derive(Clone, Copy)]
pub enum Ours {
    /// The value at this place, divided by the value at 1.
    Speedup(&'static str, u16),
    /// The value at the first place, divided by the value at the second.
    Growth(&'static str, u16, u16),
    /// The first series' value at this place, divided by the second's.
    Ratio(&'static str, &'static str, u16),
    /// The same with the third series' value subtracted from both.
    RatioOver(&'static str, &'static str, &'static str, u16),
    /// The same at the last counted place of each.
    LastRatio(&'static str, &'static str),
    /// The value at this place.
    Value(&'static str, u16),
    /// The mean number of interrupts received per round, at the last counted place.
    Targets(&'static str),
    /// The same for cache lines transferred.
    Transfers(&'static str),
}

/// The factor by which ours may fall short of a number. It allows for twice the difference between two runs.
const SAME: f64 = 1.1;

/// A claim with our number.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The compared quantity.
    pub what: &'static str,
    /// The section.
    pub place: &'static str,
    /// The paper's.
    pub paper: &'static str,
    /// Ours at the place for which the paper has a number. It may be predicted. It is null if this build or
    /// run lacks a curve for it.
    pub ours: Option<f64>,
    /// Ours at the most CPUs counted.
    pub counted: Option<f64>,
    /// The most CPUs counted.
    pub counted_to: Option<u16>,
    /// The factor by which ours falls short of the paper's, or 1 if it does not.
    pub short: Option<f64>,
    /// Whether ours agrees with the paper, if ours is known.
    pub holds: Option<bool>,
    /// The reason why ours falls short, if it does.
    #[serde(skip)]
    pub why: &'static str,
    /// The paper's number in our plot: the curve, the place on the axis, and the value.
    #[serde(skip)]
    pub said: Option<(&'static str, f64, f64)>,
}

impl Claim {
    /// Returns the claim with the reason why ours falls short.
    pub const fn because(self, why: &'static str) -> Self {
        Claim { why, ..self }
    }

    /// Returns the claim, marked as one whose number is not in the paper's text.
    pub const fn in_words(self) -> Self {
        Claim { stated: false, ..self }
    }

    /// Computes our number from the curves, and compares it with the paper's.
    pub fn compare(&self, curves: &[Curve]) -> Compared {
        let &Claim { what, place, paper, says, ours, why, stated } = self;
        let finite = |value: Option<f64>| value.filter(|value| value.is_finite());
        let counted_to = ours.counted_to(curves);
        let counted = finite(counted_to.and_then(|cpus| ours.at_most(cpus, curves).value(curves)));
        let value = finite(ours.value(curves));
        let short = value.map(|value| says.short(value));
        let holds = short.map(|short| says.number().map_or(short <= 1.0, |_| short <= SAME));
        let said = says.number().filter(|_| stated).and_then(|number| ours.place(number, curves));
        Compared { what, place, paper, ours: value, counted, counted_to, short, holds, why, said }
    }
}

impl Ours {
    /// Returns the series that it names.
    pub fn labels(self) -> Vec<&'static str> {
        match self {
            Ours::Ratio(first, second, _) | Ours::LastRatio(first, second) => vec![first, second],
            Ours::RatioOver(first, second, base, _) => vec![first, second, base],
            Ours::Speedup(of, _) | Ours::Growth(of, ..) | Ours::Value(of, _) => vec![of],
            Ours::Targets(of) | Ours::Transfers(of) => vec![of],
        }
    }

    fn value(self, curves: &[Curve]) -> Option<f64> {
        let find = |label| curves.iter().find(|curve| curve.label == label);
        let last = |of, count: usize| Some(find(of)?.counted.last()?.counts?[count]);
        match self {
            Ours::Speedup(of, at) => Ours::Growth(of, at, 1).value(curves),
            Ours::Growth(of, to, from) => Some(find(of)?.at(to)? / find(of)?.at(from)?),
            Ours::Ratio(first, second, at) => Some(find(first)?.at(at)? / find(second)?.at(at)?),
            Ours::RatioOver(first, second, base, at) => {
                let over = |label| Some(find(label)?.at(at)? - find(base)?.at(at)?);
                Some(over(first)? / over(second)?)
            }
            Ours::LastRatio(first, second) => Some(find(first)?.last()? / find(second)?.last()?),
            Ours::Value(of, at) => find(of)?.at(at),
            Ours::Targets(of) => last(of, 3),
            Ours::Transfers(of) => last(of, 1),
        }
    }

    /// Returns the largest number of CPUs to which all of its series were counted.
    fn counted_to(self, curves: &[Curve]) -> Option<u16> {
        let of = |label| curves.iter().find(|curve| curve.label == label)?.counted_to();
        self.labels().into_iter().map(of).min().flatten()
    }

    /// Returns the same with at most `most` CPUs. A value over an argument stays, because it is counted at
    /// all values of that.
    fn at_most(self, most: u16, curves: &[Curve]) -> Ours {
        let by_argument = |label| {
            let curve = curves.iter().find(|curve: &&Curve| curve.label == label);
            curve.is_some_and(|curve| curve.counted.iter().any(|of| of.x != f64::from(of.cpus)))
        };
        let least = |at: u16, label| if by_argument(label) { at } else { at.min(most) };
        match self {
            Ours::Speedup(of, at) => Ours::Speedup(of, least(at, of)),
            Ours::Growth(of, to, from) => Ours::Growth(of, least(to, of), least(from, of)),
            Ours::Ratio(first, second, at) => Ours::Ratio(first, second, least(at, first)),
            Ours::RatioOver(first, second, base, at) => {
                Ours::RatioOver(first, second, base, least(at, first))
            }
            Ours::Value(of, at) => Ours::Value(of, least(at, of)),
            of => of,
        }
    }

    /// Returns the place of the paper's number in our plot. A factor is multiplied by our value of its base.
    fn place(self, number: f64, curves: &[Curve]) -> Option<(&'static str, f64, f64)> {
        let find = |label| curves.iter().find(|curve| curve.label == label);
        match self {
            Ours::Value(of, at) => Some((of, at.into(), number)),
            Ours::Speedup(of, at) => Some((of, at.into(), number * find(of)?.at(1)?)),
            Ours::Ratio(first, second, at) => Some((first, at.into(), number * find(second)?.at(at)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::curve;
    use super::*;

    fn two() -> [Curve; 2] {
        let counted = |points: &[(f64, f64)]| curve("a", points).counted;
        let mut curves = [curve("a", &[(1.0, 10.0), (80.0, 400.0)]), curve("b", &[(1.0, 5.0), (80.0, 4.0)])];
        curves.iter_mut().for_each(|curve| curve.counted = counted(&[(1.0, 0.0)]));
        curves
    }

    #[test]
    fn numbers_come_from_the_curves_they_name() {
        let curves = two();
        assert_eq!(Ours::Speedup("a", 80).value(&curves), Some(40.0));
        assert_eq!(Ours::Growth("b", 1, 80).value(&curves), Some(1.25));
        assert_eq!(Ours::Ratio("a", "b", 1).value(&curves), Some(2.0));
        assert_eq!(Ours::LastRatio("a", "b").value(&curves), Some(100.0));
        assert_eq!(Ours::Value("b", 80).value(&curves), Some(4.0));
        let curves: Vec<Curve> = curves.into_iter().chain([curve("c", &[(1.0, 4.0)])]).collect();
        assert_eq!(Ours::RatioOver("a", "b", "c", 1).value(&curves), Some(6.0));
        assert_eq!(Ours::RatioOver("a", "b", "c", 80).value(&curves), None);
    }

    #[test]
    fn a_claim_without_a_measurement_has_no_number() {
        let curves = [curve("a", &[(1.0, 10.0)])];
        assert_eq!(Ours::Speedup("a", 80).value(&curves), None);
        assert_eq!(Ours::Ratio("a", "b", 1).value(&curves), None);
        assert_eq!(Ours::Targets("a").value(&curves), None);
    }

    #[test]
    fn counts_stand_beside_predictions() {
        let of = claim("a", "1", "75", Says::AtLeast(75.0), Ours::Speedup("a", 80))
            .because("small")
            .compare(&two());
        assert_eq!((of.ours, of.counted, of.counted_to), (Some(40.0), Some(1.0), Some(1)));
        assert_eq!((of.short, of.holds, of.said), (Some(75.0 / 40.0), Some(false), Some(("a", 80.0, 750.0))));
        let words = claim("a", "1", "good", Says::AtLeast(75.0), Ours::Speedup("a", 80)).in_words();
        assert_eq!(words.compare(&two()).said, None);
        let of = claim("a", "1", "more", Says::More, Ours::Ratio("a", "b", 80)).compare(&two());
        assert_eq!((of.counted, of.holds, of.said), (Some(2.0), Some(true), None));
        let holds = |says| claim("a", "1", "", says, Ours::Ratio("a", "b", 1)).compare(&two()).holds;
        assert_eq!(
            [Says::About(2.1), Says::About(2.3), Says::Less].map(holds),
            [Some(true), Some(false), Some(false)]
        );
    }

    #[test]
    fn falling_short_has_a_direction() {
        assert_eq!(
            [Says::AtLeast(10.0), Says::AtMost(10.0), Says::About(10.0)].map(|says| says.short(20.0)),
            [1.0, 2.0, 2.0]
        );
        assert_eq!([Says::More, Says::Less, Says::Nothing].map(|says| says.short(0.5)), [2.0, 1.0, 1.49]);
        assert_eq!(Says::Nothing.short(0.0), 1.0);
    }
}
