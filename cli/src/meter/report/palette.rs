//! One colour for each system, wherever it is drawn: numbers of the style sheet's colours.

use abi::config::Refs;

use crate::guest::system::System;

/// The first colour of curves that are not of a system.
pub const OTHERS: usize = 11;

/// Returns the number of a system's colour.
pub fn of(system: System) -> usize {
    match system {
        System::Radixvm(_, _, Refs::Snzi, _) => 9,
        System::Radixvm(_, _, Refs::Atomic, _) => 10,
        _ => {
            let usual = system.with_usual_counters();
            System::ALL.iter().position(|other| *other == usual).expect("every system is among all")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_colour_of_its_own_in_the_style_sheet() {
        let counted = [Refs::Snzi, Refs::Atomic].map(|refs| System::PERCORE.counting(refs));
        let colours: Vec<usize> = System::ALL.into_iter().chain(counted).map(of).collect();
        assert_eq!(colours, (0..OTHERS).collect::<Vec<_>>());
        for colour in colours {
            assert_eq!(super::super::style::CSS.matches(&format!("--c{colour}: ")).count(), 2, "{colour}");
            assert!(super::super::style::CSS.contains(&format!(".s{colour} {{")), "{colour}");
        }
    }
}
