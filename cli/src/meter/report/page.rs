//! The page: what was measured, curves, who fought over what, the model. One file, nothing from elsewhere.

use super::chart::{Axis, Chart, Curve, short};
use super::html::{escape, table};
use super::style::CSS;
use super::{is_last, label, number, scaling, systems};
use crate::guest::system::System;
use crate::meter::blame::Blame;
use crate::meter::model::{self, Latency, Point};
use crate::meter::row::{Cell, Row};
use crate::meter::statistics::Summary;
use crate::table::count;

/// Lines shown without a click.
const OPEN: usize = 5;
/// Numbers of CPUs that predictions are printed for.
const PRINTED: [u16; 9] = [1, 2, 4, 8, 16, 32, 64, 80, 128];

/// The page for results of one command.
pub fn page(cells: &[Cell], command: &[String]) -> String {
    let title = format!("Contention of {}", escape(&command.join(" ")));
    let body = [
        summary(cells, &title),
        curves(cells),
        predictions(cells),
        blame(cells),
        phases(cells),
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
        "<h1>{title}</h1>\n<p class=soft>{what} QEMU {}, slack {} instructions, longest run {longest:.1} s. {}.</p>\n{}",
        escape(&row.qemu),
        row.slack,
        escape(&kernels.join("; ")),
        results(cells)
    )
}

fn kernel(cells: &[Cell], system: System) -> Option<String> {
    let cell = cells.iter().find(|cell| cell.system == system)?;
    Some(format!("{}: {}", label(system), cell.row.kernel))
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
        + "<p class=soft>instructions, transfers and invalidations: medians; IPIs, targets, faults, flushes and predictions: means.</p>\n"
}

/// Loads of one system at rising numbers of CPUs.
fn points(cells: &[Cell], system: System) -> Vec<Point> {
    let loads: Vec<_> =
        cells.iter().filter(|cell| cell.system == system).map(|cell| (cell.row.cpus, cell.load)).collect();
    model::curve(&loads)
}

fn curves(cells: &[Cell]) -> String {
    let figure = |class: &str, chart: Chart| {
        format!(
            "<figure class=\"{class}\">{}<figcaption>{}</figcaption></figure>\n",
            chart.svg(),
            escape(&chart.title)
        )
    };
    let counted = |title: &str, of: fn(&Row) -> &Summary| figure("", counts(cells, title, of));
    let charts = [
        figure("first", speeds(cells)),
        counted("Cache lines transferred per round: median, and the range of eight rounds in ten", |row| {
            &row.transfers
        }),
        counted("Instructions per round", |row| &row.instructions),
        counted("Interrupts between CPUs per round, by target", |row| &row.ipi_targets),
        counted("Copies invalidated per round", |row| &row.invalidations),
    ];
    format!("<h2>Curves</h2>\n<div class=charts>{}</div>\n", charts.concat())
}

fn speeds(cells: &[Cell]) -> Chart {
    let curve = |(color, system): (usize, System)| {
        let measured: Vec<&Cell> = cells.iter().filter(|cell| cell.system == system).collect();
        let known_to = measured.iter().map(|cell| f64::from(cell.row.cpus)).fold(1.0, f64::max);
        let points = points(cells, system);
        let beyond = points.iter().filter(|point| f64::from(point.cpus) >= known_to);
        let dot = |cell: &&Cell| (f64::from(cell.row.cpus), cell.row.predicted_rounds_per_s.mean);
        Curve {
            label: label(system).to_owned(),
            color,
            band: beyond.map(|point| (point.cpus.into(), point.growing, point.steady)).collect(),
            points: points.iter().map(|point| (point.cpus.into(), point.growing)).collect(),
            known_to,
            dots: measured.iter().map(dot).collect(),
        }
    };
    let title = "Predicted rounds per second of all CPUs. Dots: from counts at that number of CPUs. Dashed: beyond what was \
                 counted, counts going on as before; shaded: up to counts staying as they are. Dotted: perfect scaling.";
    let curves = systems(cells).into_iter().enumerate().map(curve).collect();
    Chart { axis: Axis::Logarithmic, title: title.to_owned(), curves, ideal: Some(0) }
}

fn counts(cells: &[Cell], title: &str, of: fn(&Row) -> &Summary) -> Chart {
    let curve = |(color, system): (usize, System)| {
        let measured = || cells.iter().filter(move |cell| cell.system == system).map(|cell| &cell.row);
        let points: Vec<_> = measured().map(|row| (f64::from(row.cpus), of(row).median)).collect();
        Curve {
            label: label(system).to_owned(),
            color,
            band: measured().map(|row| (row.cpus.into(), of(row).p10, of(row).p90)).collect(),
            known_to: f64::INFINITY,
            dots: points.clone(),
            points,
        }
    };
    let curves = systems(cells).into_iter().enumerate().map(curve).collect();
    Chart { axis: Axis::Linear, title: title.to_owned(), curves, ideal: None }
}

fn predictions(cells: &[Cell]) -> String {
    let row = |system: System| {
        let points = points(cells, system);
        let at = |cpus: &u16| points.get(usize::from(*cpus) - 1);
        let cell = |cpus: &u16| at(cpus).map_or_else(String::new, |point| short(point.growing));
        let limit = points.last().map_or("", |point| point.limit.describe());
        [label(system).to_owned()]
            .into_iter()
            .chain(PRINTED.iter().map(cell))
            .chain([limit.to_owned()])
            .collect()
    };
    let numbers = PRINTED.map(|cpus| cpus.to_string());
    let heading: Vec<&str> = ["predicted/s at CPUs"]
        .into_iter()
        .chain(numbers.iter().map(String::as_str))
        .chain(["limit at 128"])
        .collect();
    table(&heading, systems(cells).into_iter().map(row))
}

fn blame(cells: &[Cell]) -> String {
    let most = cells.iter().filter(|cell| is_last(cell, cells));
    let others = cells.iter().filter(|cell| !is_last(cell, cells) && cell.row.cpus > 1);
    let shown: String = most.map(|cell| lines_of(cell, OPEN)).collect();
    let hidden: String = others.map(|cell| lines_of(cell, 0)).collect();
    format!(
        "<h2>Who fights over what</h2>\n<p>The lines that were transferred most, with the code on both sides: the one that had the \
             line, and the one that took it. All numbers are per round.</p>\n{shown}{hidden}"
    )
}

fn lines_of(cell: &Cell, open: usize) -> String {
    let heading = format!("{}, {} CPUs", label(cell.system), cell.row.cpus);
    if cell.blame.is_empty() {
        return format!("<h3>{heading}</h3><p>No line was transferred.</p>\n");
    }
    let lines: Vec<String> = cell.blame.iter().map(line).collect();
    let (first, rest) = lines.split_at(open.min(lines.len()));
    let summary = if open == 0 { heading.clone() } else { format!("{} more lines", rest.len()) };
    let title = if open == 0 { String::new() } else { format!("<h3>{heading}</h3>\n") };
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!("<details><summary>{summary}</summary>{}</details>\n", rest.concat())
    };
    format!("{title}{}{rest}", first.concat())
}

fn line(line: &Blame) -> String {
    let sharing = if line.false_sharing { " <span class=tag>false sharing</span>" } else { "" };
    let pair = |pair: &crate::meter::blame::Fight| {
        let code = |text: &str| format!("<code>{}</code>", escape(text));
        format!(
            "<tr><td class=number>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            number(pair.count),
            escape(&pair.kind),
            code(&pair.from),
            code(&pair.to)
        )
    };
    format!(
        "<div class=line><b>{}</b>{sharing} <span class=soft>at {}: {} transfers, {} of them upgrades, {} invalidations, by {} CPUs</span>\n\
         <table><thead><tr><th>times</th><th>how</th><th>from</th><th>to</th></tr></thead><tbody>{}</tbody></table></div>\n",
        escape(&line.owner),
        line.address,
        number(line.transfers),
        number(line.upgrades),
        number(line.invalidations),
        line.cpus,
        line.pairs.iter().map(pair).collect::<String>()
    )
}

/// Where the window's counts belong, at the largest number of CPUs.
fn phases(cells: &[Cell]) -> String {
    let rows = cells.iter().filter(|cell| is_last(cell, cells)).flat_map(phase_rows);
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
        "<h2>The whole window</h2>\n<p>Sums over all CPUs, by what the program said that it was doing.</p>\n{}",
        table(&heading, rows)
    )
}

fn phase_rows(cell: &Cell) -> Vec<Vec<String>> {
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
        let transfers = ["read_modified", "read_clean", "write_modified", "write_clean", "upgrades"]
            .map(of)
            .iter()
            .sum::<u64>();
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

fn model_text() -> String {
    let latency = |latency: &Latency| {
        let at = |cpus| format!("{:.0}", latency.cycles(cpus));
        vec![latency.kind.to_owned(), format!("{:.0}", latency.near), format!("{:.0}", latency.far), at(80.0)]
    };
    let latencies = [model::READ_MODIFIED, model::READ_CLEAN, model::WRITE, model::UPGRADE];
    format!(
        "<h2>The cost model</h2>\n{LAW}\n{}<p>An interrupt is waited for {:.0} cycles with up to 16 CPUs and {:.0} with 120, sending it takes \
         {:.0} to {:.0} cycles per target (Kumar and others, LATR, ASPLOS 2018), and its target {:.0} for the trap (Baumann and others, The \
         multikernel, SOSP 2009). {} instructions per cycle, {} GHz, sockets of ten cores: RadixVM's machine (EuroSys 2013).</p>\n{EXTRAPOLATION}\n{UNSEEN}",
        table(
            &["cycles of a", "same socket", "other socket", "mean of 80 cores"],
            latencies.iter().map(latency)
        ),
        model::answer(16.0),
        model::answer(120.0),
        model::send(16.0),
        model::send(120.0),
        model::TRAP,
        model::IPC,
        model::FREQUENCY / 1e9,
    )
}

const LAW: &str = "<p>Rounds per second are the least of three: <b>N / cycles</b> of a round, each CPU on its own; <b>1 / (transfers of the \
hottest line · latency)</b>, because a line is in one place at a time; <b>1 / waiting</b>, the time of a round during which other CPUs sleep, \
where they do. A round's cycles are its instructions, each kind of transfer times its latency, and its interrupts. Latencies: David, Guerraoui, \
Trigonakis, <i>Everything you always wanted to know about synchronization but were afraid to ask</i>, SOSP 2013, table 2 (Xeon); for another socket \
the mean over seven, three of them one hop away and four two hops.</p>";

const EXTRAPOLATION: &str = "<p><b>Between</b> numbers of CPUs that were counted, counts per round go in straight lines. <b>Beyond</b> the largest, \
the dashed curve continues the line through the last two (both of more than one CPU); the shaded area reaches to where counts would stay as they were \
last. Only the latencies change then. Queues in front of a line that is not yet saturated, caches that are full, and memory that is far are left out, \
so real machines are slower; the shape is the prediction.</p>";

const UNSEEN: &str = "<p><b>Not seen</b> by the emulator's plugin: instruction fetches, page walks and the accessed and dirty bits that they write, \
exception frames that the CPU pushes, evictions. Shared page tables cost more on real machines than this page says.</p>";

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
    fn every_element_is_closed() {
        let page = page(&cells(), &["local".to_owned()]);
        for tag in ["table", "div", "figure", "svg", "details", "p", "tr", "h2", "h3"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn phases_are_summed_over_cpus() {
        let rows = phase_rows(&cells()[0]);
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0][2..5], ["kernel", "5,600", "3"].map(str::to_owned));
    }
}
