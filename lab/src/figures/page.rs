//! The page: every figure as its paper has it, a table under each plot, the paper's numbers beside ours. One file, nothing from
//! elsewhere.

use super::claims::Compared;
use super::curve::{Curve, PAPER};
use super::results::{Drawn, Plotted, Results};
use super::tables;
use launch::meter::report::chart::{self, Chart, short};
use launch::meter::report::html::{escape, table};
use launch::meter::report::law::model_text;
use launch::meter::report::scale::Axis;
use launch::meter::report::style::CSS;
use launch::meter::row::Row;
use launch::table::count;

const TITLE: &str = "The figures of RadixVM and Bonsai";

const READING: &str = "<p>Dots: predicted from what was counted in a guest with that many virtual CPUs. Solid lines join them by the cost model \
below; dashed, beyond the most CPUs counted, they go on as counts per round went on before; shaded: up to counts staying as they were. Axes and \
names are the papers'. None of it was timed on a large machine: the shape is the prediction, not the height.</p>";

/// The page for these results.
pub fn page(results: &Results) -> String {
    let figures: String = results.figures.iter().map(figure).collect();
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>{TITLE}</title>\n<style>{CSS}</style>\n<h1>{TITLE}</h1>\n{}{READING}{figures}{}</html>\n",
        summary(results),
        model_text()
    )
}

fn summary(results: &Results) -> String {
    let Results { identity, quick, .. } = results;
    let effort = if *quick { "a quick run: few rounds" } else { "a full run" };
    let rows = results.figures.iter().flat_map(|figure| figure.panels.iter().flat_map(|panel| &panel.series));
    let metered = rows.flat_map(|curve| curve.counts.last()).collect::<Vec<_>>();
    let mut tools: Vec<String> = metered.iter().map(|row| row.kernel.clone()).collect();
    tools.extend(metered.first().map(|row| format!("QEMU {}, huge pages {}", row.qemu, row.huge)));
    tools.sort();
    tools.dedup();
    let links: Vec<String> =
        results.figures.iter().map(|of| format!("<a href=\"#{}\">{}</a>", of.id, of.id)).collect();
    format!(
        "<p class=soft>Commit {}; {effort}; {}; on {} × {}, {}.</p>\n<p>{}</p>\n",
        escape(&identity.commit),
        escape(&tools.join(", ")),
        identity.processors,
        escape(&identity.processor),
        escape(&identity.host),
        links.join(" · ")
    )
}

fn figure(figure: &Drawn) -> String {
    let plots: String = figure.panels.iter().map(|panel| plot(figure, panel)).collect();
    let claims =
        figure.panels.iter().flat_map(|panel| panel.claims.iter().map(move |claim| (panel.title, claim)));
    let mut missing: Vec<String> =
        figure.panels.iter().flat_map(|panel| &panel.series).flat_map(missing).collect();
    missing.dedup();
    let missing = if missing.is_empty() {
        String::new()
    } else {
        format!("<ul class=soft>{}</ul>\n", missing.concat())
    };
    format!(
        "<section id=\"{}\"><h2>{}: {}</h2>\n<p class=soft>{}</p>\n<div class=\"charts plots\">{plots}</div>\n{}{}{}{missing}{}</section>\n",
        figure.id,
        escape(figure.paper),
        escape(figure.title),
        escape(figure.note),
        tables::times(&figure.times),
        tables::memory(&figure.rows),
        claimed(claims),
        counts(figure)
    )
}

/// A plot with its numbers below.
fn plot(figure: &Drawn, panel: &Plotted) -> String {
    let title = format!("{}: {} over {}", panel.title, figure.y, figure.x);
    format!(
        "<figure>{}<figcaption>{}</figcaption>{}</figure>\n",
        picture(figure, panel).svg(),
        escape(&title),
        numbers(figure, panel)
    )
}

/// The plot by itself.
pub fn picture(figure: &Drawn, panel: &Plotted) -> Chart {
    let drawn = panel.series.iter().enumerate().filter(|(_, curve)| !curve.points.is_empty());
    Chart {
        across: (figure.x, Axis::Linear),
        up: (figure.y, Axis::Linear),
        title: format!("{}: {}", figure.paper, panel.title),
        curves: drawn.map(|(color, curve)| drawing(color, curve)).collect(),
        ideal: None,
    }
}

fn drawing(color: usize, curve: &Curve) -> chart::Curve {
    let known_to = curve.points.iter().map(|point| point.0).fold(0.0, f64::max);
    let shown = || curve.line.iter().filter(|place| place.0 <= known_to.max(PAPER.into()));
    let points: Vec<_> = shown().map(|(x, y, _)| (*x, *y)).collect();
    chart::Curve {
        label: curve.label.to_owned(),
        color,
        points: if points.is_empty() { curve.points.clone() } else { points },
        known_to,
        band: shown().filter(|place| place.0 >= known_to).copied().collect(),
        dots: curve.points.clone(),
    }
}

/// A row for each place where something was counted, and one for where the papers' axes end.
fn numbers(figure: &Drawn, panel: &Plotted) -> String {
    let mut places: Vec<f64> =
        panel.series.iter().flat_map(|curve| curve.points.iter().map(|point| point.0)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let (counted, end) = (places.clone(), f64::from(PAPER));
    if panel.series.iter().any(|curve| curve.at(PAPER).is_some()) && !places.contains(&end) {
        places.push(end);
    }
    let row = |x: &f64| {
        let cells =
            panel.series.iter().map(|curve| curve.at(*x as u16).map_or_else(|| "–".to_owned(), short));
        let beyond = if counted.contains(x) { "" } else { " (dashed)" };
        [format!("{x}{beyond}")].into_iter().chain(cells).collect()
    };
    let heading: Vec<&str> =
        [figure.x].into_iter().chain(panel.series.iter().map(|curve| curve.label)).collect();
    if places.is_empty() { String::new() } else { table(&heading, places.iter().map(row)) }
}

fn missing(curve: &Curve) -> Vec<String> {
    let item = |why: &str| format!("<li>{}: {}</li>", escape(curve.label), escape(why));
    let absent = curve.not_in_this_build.iter().map(|what| item(&format!("not in this build ({what})")));
    absent.chain(curve.skipped.iter().map(|why| item(&format!("skipped: {why}")))).collect()
}

fn claimed<'a>(claims: impl Iterator<Item = (&'static str, &'a Compared)>) -> String {
    let row = |(panel, claim): (&str, &Compared)| {
        let ours = claim.ours.map_or_else(|| "–".to_owned(), short);
        vec![format!("{panel}: {}", claim.what), claim.place.to_owned(), claim.paper.to_owned(), ours]
    };
    let rows: Vec<_> = claims.map(row).collect();
    if rows.is_empty() { String::new() } else { table(&["", "section", "paper", "ours"], rows) }
}

/// What the curves come from.
fn counts(figure: &Drawn) -> String {
    let heading = [
        "",
        "CPUs",
        "boots",
        "rounds",
        "instructions",
        "transfers",
        "mean",
        "targets",
        "faults",
        "flushes",
        "escapes",
    ];
    let curves = figure.panels.iter().flat_map(|panel| panel.series.iter().map(move |curve| (panel, curve)));
    let row = |(panel, curve): (&Plotted, &Curve), (row, boots): (&Row, &usize)| {
        vec![
            format!("{}: {}", panel.title, curve.label),
            row.cpus.to_string(),
            boots.to_string(),
            row.rounds.to_string(),
            count(row.instructions.median.round() as i64),
            short(row.transfers.median),
            short(row.transfers.mean),
            short(row.ipi_targets.mean),
            short(row.faults.mean),
            short(row.tlb_flushes.mean),
            row.escapes.to_string(),
        ]
    };
    let rows: Vec<_> = curves.flat_map(|of| of.1.counted().map(move |counted| row(of, counted))).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("<details><summary>Counts per round</summary>{}</details>\n", table(&heading, rows))
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::filled;
    use super::super::identity::Identity;
    use super::super::{Plot, all};
    use super::*;

    fn results() -> Results {
        let curve = |of: &super::super::Series| Curve { label: of.label, ..filled(Plot::PerRound(1.0)) };
        let figures = all().map(|figure| Drawn::new(figure, |_, _, series| curve(series)).unwrap());
        let figures = figures.collect();
        Results { identity: Identity::here(), quick: true, cpus: vec![1, 2], measured: 0, kept: 0, figures }
    }

    #[test]
    fn every_figure_has_its_plots_and_tables_and_nothing_comes_from_elsewhere() {
        let results = results();
        let page = page(&results);
        let plots: usize = results.figures.iter().map(|figure| figure.panels.len()).sum();
        assert_eq!(page.matches("<svg ").count(), plots);
        for figure in &results.figures {
            assert!(page.contains(&format!("<section id=\"{}\">", figure.id)), "{}", figure.id);
        }
        for word in ["src=", "href=\"http", "<script", "@import", "NaN"] {
            assert!(!page.contains(word), "{word}");
        }
        for word in
            ["Read/write locking", "within 8 %", "chromium", "page faults/s", "prefers-color-scheme: dark"]
        {
            assert!(page.contains(word), "no {word}");
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        let mut results = results();
        let curve = &mut results.figures[0].panels[0].series[0];
        *curve =
            Curve { label: curve.label, not_in_this_build: Some("design x".to_owned()), ..Curve::default() };
        let page = page(&results);
        assert!(page.contains("RadixVM/8 MB: not in this build (design x)"));
    }
}
