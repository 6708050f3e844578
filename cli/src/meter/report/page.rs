//! The page: results, curves, contended lines, the cost model. It is one file and refers to no other.

use super::contended_lines::blame;
use super::curves::{curves, predictions};
use super::html::{escape, table};
use super::law::model_text;
use super::style::CSS;
use super::{is_last, number, phases, scaling, systems};
use crate::guest::system::System;
use crate::meter::output::TRANSFERS;
use crate::meter::row::{Cell, Row};
use crate::table::count;

/// Formats the page for the results of one command.
pub fn page(cells: &[Cell], command: &[String]) -> String {
    let title = format!("Contention of {}", escape(&command.join(" ")));
    let body = [
        summary(cells, &title),
        curves(cells),
        predictions(cells),
        blame(cells),
        phases(cells),
        window(cells),
        model_text(),
    ];
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{CSS}</style>\n{}</html>\n",
        body.concat()
    )
}

fn summary(cells: &[Cell], title: &str) -> String {
    let Some(Cell { row, .. }) = cells.first() else { return format!("<h1>{title}</h1>") };
    let kernels: Vec<String> =
        systems(cells).into_iter().filter_map(|system| kernel(cells, system)).collect();
    let what = if row.marked {
        "Counts per round."
    } else {
        "The program marks no rounds: counts of the whole run."
    };
    let longest = cells.iter().map(|cell| cell.host_seconds).fold(0.0, f64::max);
    format!(
        "<h1>{title}</h1>\n<p class=soft>{what} QEMU {}, slack {} instructions, huge pages {}, longest run {longest:.1} s. {}.</p>\n{}",
        escape(&row.qemu),
        super::slack(cells),
        escape(&row.huge),
        escape(&kernels.join("; ")),
        results(cells)
    )
}

fn kernel(cells: &[Cell], system: System) -> Option<String> {
    let cell = cells.iter().find(|cell| cell.system == system)?;
    Some(format!("{}: {}", system.label(), cell.row.kernel))
}

fn results(cells: &[Cell]) -> String {
    let heading = [
        "system",
        "CPUs",
        "rounds",
        "instructions",
        "transfers",
        "10–90 %",
        "mean",
        "invalidations",
        "IPIs",
        "targets",
        "faults",
        "flushes",
        "predicted/s",
        "scaling",
        "escapes",
    ];
    let row = |cell: &Cell| {
        let Row { instructions, transfers, predicted_rounds_per_s, .. } = &cell.row;
        vec![
            cell.system.to_string(),
            cell.row.cpus.to_string(),
            cell.row.rounds.to_string(),
            count(instructions.median.round() as i64),
            number(transfers.median),
            format!("{}–{}", number(transfers.p10), number(transfers.p90)),
            number(transfers.mean),
            number(cell.row.invalidations.median),
            number(cell.row.ipis.mean),
            number(cell.row.ipi_targets.mean),
            number(cell.row.faults.mean),
            number(cell.row.tlb_flushes.mean),
            count(predicted_rounds_per_s.mean.round() as i64),
            scaling(cell, cells),
            cell.row.escapes.to_string(),
        ]
    };
    table(&heading, cells.iter().map(row))
        + "<p class=soft>Instructions, transfers and invalidations are medians. IPIs, targets, faults, flushes and predictions are means.</p>\n"
}

/// Formats the counts by phase, or nothing if the program marks no phases.
fn phases(cells: &[Cell]) -> String {
    let rows = phases::rows(cells);
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>By phase</h2>\n<p>The phases that the program marks: means per round.</p>\n{}",
        table(&phases::HEADING, rows)
    )
}

/// Formats the counts of the window at the largest number of CPUs.
fn window(cells: &[Cell]) -> String {
    let rows = cells.iter().filter(|cell| is_last(cell, cells)).flat_map(window_rows);
    let heading = [
        "system",
        "phase",
        "privilege",
        "instructions",
        "transfers",
        "invalidations",
        "loads",
        "stores",
        "cold",
        "string iterations",
    ];
    format!(
        "<h2>The whole window</h2>\n<p>Sums over all CPUs, by phase and privilege.</p>\n{}",
        table(&heading, rows)
    )
}

fn window_rows(cell: &Cell) -> Vec<Vec<String>> {
    let mut keys: Vec<(u8, &str)> =
        cell.totals.iter().map(|total| (total.phase, &*total.privilege)).collect();
    keys.sort_unstable();
    keys.dedup();
    let row = |(phase, privilege): (u8, &str)| {
        let of = |name: &str| -> u64 {
            let same =
                cell.totals.iter().filter(|total| (total.phase, &*total.privilege) == (phase, privilege));
            same.filter_map(|total| total.counts.get(name)).sum()
        };
        let transfers = TRANSFERS.map(of).iter().sum::<u64>();
        let numbers = [
            of("instructions"),
            transfers,
            of("invalidations"),
            of("loads"),
            of("stores"),
            of("cold"),
            of("rep_iterations"),
        ];
        let words =
            [format!("{}, {} CPUs", cell.system, cell.row.cpus), phase.to_string(), privilege.to_owned()];
        words.into_iter().chain(numbers.map(|number| count(number as i64))).collect()
    };
    keys.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::report::tests::cells;

    #[test]
    fn the_page_holds_everything_and_needs_nothing() {
        let page = page(&cells(), &["local".to_owned(), "<x>".to_owned()]);
        for word in [
            "Contention of local &lt;x&gt;",
            "stock Linux",
            "read modified",
            "false sharing",
            "By phase",
            "SOSP 2013",
            "LATR",
            "limit at 128",
            "prefers-color-scheme: dark",
            "Not seen",
        ] {
            assert!(page.contains(word), "no {word}");
        }
        for foreign in ["http://", "https://", "<script", "src=", "@import", "NaN"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<svg").count(), 5);
    }

    #[test]
    fn the_picture_stands_alone() {
        let picture = crate::meter::report::picture(&cells());
        assert!(
            picture.starts_with("<svg xmlns=")
                && picture.contains("<style>")
                && picture.contains("stock Linux")
        );
        assert!(!picture.contains("='") && picture.matches('"').count().is_multiple_of(2));
    }

    #[test]
    fn every_element_is_closed() {
        let page = page(&cells(), &["local".to_owned()]);
        for tag in ["table", "div", "figure", "svg", "details", "p", "tr", "h2", "h3"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn the_window_is_summed_over_cpus() {
        let rows = window_rows(&cells()[0]);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0][2..5], ["kernel", "5,600", "3"].map(str::to_owned));
    }
}
