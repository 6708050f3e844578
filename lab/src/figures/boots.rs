//! The number of boots of a run. Guests differ: the order in which threads take turns at a lock is decided
//! soon after a boot, and more rounds of the same guest do not change it. So the plotted and compared values
//! are means over boots, and a run has as many boots as its means need.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::counts::Count;
use super::measure::Measured;
use launch::meter::row::Row;

/// For n + 2 boots, the number of standard errors to each side of their mean that contain the true mean 98
/// times in a hundred: Student's distribution.
const ERRORS: [f64; 31] = [
    31.821, 6.965, 4.541, 3.747, 3.365, 3.143, 2.998, 2.896, 2.821, 2.764, 2.72, 2.681, 2.650, 2.624, 2.602,
    2.583, 2.567, 2.552, 2.539, 2.528, 2.518, 2.508, 2.500, 2.492, 2.485, 2.479, 2.473, 2.467, 2.462, 2.457,
    2.453,
];
/// The most boots of a run, unless fewer are asked for.
pub const MOST: usize = ERRORS.len() + 1;

/// Returns whether there are enough boots: two, or three if rounds scatter, and more until every count is
/// known. A quick run and a program's own report take one.
pub fn suffice(boots: &[Measured], quick: bool) -> bool {
    let rows: Vec<&Row> = boots.iter().filter_map(Measured::row).collect();
    match boots.len() {
        0 => false,
        1 => quick || rows.is_empty(),
        MOST.. => true,
        _ => are_known(&rows),
    }
}

/// Returns the mean of the boots' results.
pub fn mean(boots: &[Measured]) -> Result<Measured> {
    let all: Vec<Value> = boots.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    serde_json::from_value(mean_of(&all.iter().collect::<Vec<_>>()))
        .context("boots that left different things")
}

fn are_known(rows: &[&Row]) -> bool {
    let counts: Vec<[Count; 5]> = rows.iter().map(|row| Count::all(row)).collect();
    (0..5).all(|at| is_known(&counts.iter().map(|of| &of[at]).collect::<Vec<_>>()))
}

/// Returns whether the true mean is probably within half of the difference that two runs may have. Then two
/// such runs agree. If rounds scatter, guests come in kinds, and two boots of the same kind are likely.
fn is_known(boots: &[&Count]) -> bool {
    let tolerance = boots.iter().map(|count| count.tolerance(count)).fold(f64::INFINITY, f64::min);
    if boots.len() == 2 && boots.iter().any(|count| count.scatter > tolerance) {
        return false;
    }
    let values: Vec<f64> = boots.iter().map(|count| count.value).collect();
    ERRORS[boots.len() - 2] * standard_error(&values) <= tolerance / 2.0
}

/// Returns the standard error of the mean.
fn standard_error(values: &[f64]) -> f64 {
    let number = values.len() as f64;
    let mean = values.iter().sum::<f64>() / number;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (number - 1.0) / number).sqrt()
}

/// Returns the mean of every number of documents of the same form. Other values are those of the first.
fn mean_of(all: &[&Value]) -> Value {
    match all[0] {
        Value::Number(_) => mean_number(all),
        Value::Array(first) => (0..first.len()).map(|at| mean_of(&each(all, |of| of.get(at)))).collect(),
        Value::Object(first) => {
            first.keys().map(|key| (key.clone(), mean_of(&each(all, |of| of.get(key))))).collect()
        }
        other => other.clone(),
    }
}

fn each<'a>(all: &[&'a Value], part: impl Fn(&'a Value) -> Option<&'a Value>) -> Vec<&'a Value> {
    all.iter().filter_map(|of| part(of)).collect()
}

/// Returns the mean of numbers. Whole numbers stay whole.
fn mean_number(all: &[&Value]) -> Value {
    let numbers: Vec<f64> = all.iter().filter_map(|of| of.as_f64()).collect();
    let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
    if all[0].is_u64() { json!(mean.round() as u64) } else { json!(mean) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::cell;
    use launch::guest::system::System;
    use std::collections::BTreeMap;

    /// Returns a boot with this many instructions and transfers per round.
    fn boot(instructions: f64, transfers: f64) -> Measured {
        let cell = cell(System::PERCORE, 2);
        let (mut row, mut load) = (cell.row, cell.load);
        for summary in [&mut row.instructions, &mut row.transfers, &mut row.invalidations] {
            summary.p90 = summary.p10;
        }
        (row.instructions.mean, row.transfers.mean, load.instructions) =
            (instructions, transfers, instructions);
        Measured::Metered {
            row: Box::new(row),
            load,
            counters: BTreeMap::from([("of".to_owned(), instructions)]),
        }
    }

    fn enough(instructions: &[f64]) -> bool {
        let boots: Vec<_> = instructions.iter().map(|of| boot(*of, 10.0)).collect();
        suffice(&boots, false)
    }

    #[test]
    fn equal_guests_are_booted_twice_and_others_until_their_mean_is_known() {
        assert!(!enough(&[]) && !enough(&[1000.0]));
        assert!(enough(&[1000.0, 1000.0]) && enough(&[1000.0, 1001.0]));
        assert!(!enough(&[1000.0, 1005.0]) && !enough(&[1000.0, 1050.0].repeat(3)));
        assert!(enough(&[1000.0, 1050.0].repeat(5)));
    }

    #[test]
    fn equal_guests_are_booted_thrice_if_their_rounds_scatter() {
        let mut guest = boot(1000.0, 10.0);
        let Measured::Metered { row, .. } = &mut guest else { unreachable!() };
        (row.instructions.p10, row.instructions.p90) = (900.0, 1100.0);
        assert!(!suffice(&vec![guest.clone(); 2], false));
        assert!(suffice(&vec![guest; 3], false));
    }

    #[test]
    fn one_guest_of_another_kind_makes_many_necessary() {
        let mut guests = [20_827.0; MOST];
        guests[0] = 25_008.0;
        assert!((2..20).all(|boots| !enough(&guests[..boots])) && enough(&guests));
    }

    #[test]
    fn each_count_must_be_known_as_far_as_it_costs() {
        let two = |instructions, transfers| {
            suffice(&[boot(instructions, 60.0), boot(instructions, transfers)], false)
        };
        assert!(!two(10_000.0, 62.0));
        assert!(two(1e6, 62.0), "two transfers are nothing beside a million instructions");
    }

    #[test]
    fn a_quick_look_and_a_report_take_one_boot() {
        assert!(suffice(&[boot(1.0, 1.0)], true));
        assert!(suffice(&[Measured::Reported(BTreeMap::new())], false));
    }

    #[test]
    fn the_mean_is_of_all_numbers_and_keeps_words() {
        let mean = mean(&[boot(1000.0, 3.0), boot(1200.0, 4.0), boot(1400.0, 5.0)]).unwrap();
        let Measured::Metered { row, load, .. } = &mean else { panic!("{mean:?}") };
        assert_eq!((row.instructions.mean, row.transfers.mean, load.instructions), (1200.0, 4.0, 1200.0));
        let of_one = cell(System::PERCORE, 2).row;
        assert_eq!((row.rounds, &row.program), (of_one.rounds, &of_one.program));
        assert_eq!(row.phases, of_one.phases);
    }
}
