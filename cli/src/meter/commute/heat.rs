//! The results as a picture: for each system a square with a cell for each pair of calls, the redder the more
//! of its tests conflict.

use std::fmt::Write;

use commute::call::OPS;

use super::Outcome;
use super::report::{Share, on, systems};
use crate::meter::report::html::escape;
use crate::meter::report::style::CSS;

/// The side of a cell.
const CELL: usize = 20;
/// The room for the names of calls, at the left and above.
const NAMES: usize = 76;
/// The room for the heading.
const HEADING: usize = 26;
/// The room between two squares, and around all.
const GAP: usize = 12;
/// The side of a square with its names.
const SIDE: usize = NAMES + OPS.len() * CELL;

/// Draws the squares beside each other.
pub fn picture(outcomes: &[Outcome]) -> String {
    let systems = systems(outcomes);
    let width = GAP + systems.len() * (SIDE + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{}\" role=\"img\">\n\
         <title>Pairs of calls that commute, and conflict</title>\n<style>{CSS}</style>\n\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
        HEADING + SIDE + 2 * GAP
    );
    for (place, system) in systems.iter().enumerate() {
        square(&mut svg, GAP + place * (SIDE + GAP), outcomes, system).expect("strings take all");
    }
    svg + "</svg>\n"
}

fn square(svg: &mut String, left: usize, outcomes: &[Outcome], system: &str) -> std::fmt::Result {
    let all = Share::of(on(outcomes, system));
    let heading = format!("{system}: {} % of {} tests are free of conflicts", all.percent(), all.all);
    writeln!(svg, "<g transform=\"translate({left} {GAP})\">")?;
    writeln!(svg, "<text class=\"heading\" x=\"0\" y=\"14\">{}</text>", escape(&heading))?;
    for (place, (_, name, _)) in OPS.iter().enumerate() {
        let middle = HEADING + NAMES + place * CELL + CELL / 2 + 4;
        writeln!(svg, "<text text-anchor=\"end\" x=\"{}\" y=\"{middle}\">{name}</text>", NAMES - 6)?;
        let (across, above) = (NAMES + place * CELL + CELL / 2 + 4, HEADING + NAMES - 6);
        let turned = format!("translate({across} {above}) rotate(-90)");
        writeln!(svg, "<text transform=\"{turned}\">{name}</text>")?;
    }
    for (row, (_, one, _)) in OPS.iter().enumerate() {
        for (column, (_, other, _)) in OPS.iter().enumerate() {
            let share = Share::of(on(outcomes, system).filter(|outcome| outcome.is_of(one, other)));
            let (x, y) = (NAMES + column * CELL, HEADING + NAMES + row * CELL);
            cell(svg, (x, y), [one, other], share)?;
        }
    }
    writeln!(svg, "</g>")
}

/// Draws a cell, unless no test has this pair of calls. A free pair has a frame only.
fn cell(svg: &mut String, (x, y): (usize, usize), [one, other]: [&str; 2], share: Share) -> std::fmt::Result {
    if share.all == 0 {
        return Ok(());
    }
    let red = 1.0 - share.free as f64 / share.all as f64;
    writeln!(
        svg,
        "<rect class=\"grid\" style=\"fill: var(--hot)\" fill-opacity=\"{red:.2}\" x=\"{x}\" y=\"{y}\" \
         width=\"{CELL}\" height=\"{CELL}\"><title>{one}, {other}: {} of {} free</title></rect>",
        share.free, share.all
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;
    use super::*;

    #[test]
    fn a_pair_is_red_by_its_share_of_conflicts_in_both_halves() {
        let outcomes = [
            outcome("threads/a", ["open", "stat"], "adaptive", 2),
            outcome("threads/b", ["stat", "open"], "adaptive", 0),
            outcome("threads/b", ["stat", "stat"], "linux", 0),
        ];
        let svg = picture(&outcomes);
        let cells = |words: &str| svg.lines().filter(|line| line.contains(words)).collect::<Vec<_>>();
        for words in ["<title>open, stat: 1 of 2 free", "<title>stat, open: 1 of 2 free"] {
            assert!(cells(words).len() == 1 && cells(words)[0].contains("fill-opacity=\"0.50\""), "{svg}");
        }
        assert!(cells("<title>stat, stat: 1 of 1 free")[0].contains("fill-opacity=\"0.00\""), "{svg}");
        assert_eq!(svg.matches("class=\"grid\"").count(), 3, "pairs without a test are not drawn");
        assert!(svg.contains("adaptive: 50.0 % of 2 tests") && svg.contains("linux: 100.0 % of 1 tests"));
    }
}
