//! The HTML page. It shows every figure as its paper does, with a table under each plot and the paper's
//! numbers beside ours. It is one file that loads nothing from elsewhere.

use super::claims::Compared;
use super::compact::{Compact, Origin};
use super::curve::{Counted, Curve, PAPER};
use super::results::{Drawn, Plotted};
use super::{publish, tables};
use launch::meter::report::chart::{self, Chart, Mark, Said, short};
use launch::meter::report::html::{escape, table};
use launch::meter::report::law::model_text;
use launch::meter::report::scale::Axis;
use launch::meter::report::style::CSS;
use launch::table::count;

const TITLE: &str = "The figures of RadixVM and Bonsai";

const READING: &str = "<p>A dot is predicted from the counts of a guest with that number of virtual CPUs. Solid lines join the dots by the cost \
model below. Dashed lines go beyond the most CPUs counted, with counts per round that go on as they did before. A shaded \
area reaches to the line for counts that stay as they were. A diamond is a number of the paper's text, in the colour of \
its curve. A factor is multiplied by our value. Axes and names are the papers'. Nothing was timed on a large machine: \
the shape is the prediction, not the height.</p>";

/// The meanings of the marks.
const KEY: &[(Mark, &str)] = &[
    (Mark::Dot, "counted"),
    (Mark::Dashed, "predicted"),
    (Mark::Shaded, "to: counts stay"),
    (Mark::Diamond, "the paper"),
];
/// The smallest part of the chart's height at which a curve may end. A lower end would lie on the axis.
const LOWEST: f64 = 0.05;

/// Returns the page for a compact file.
pub fn page(compact: &Compact) -> String {
    let figures = compact.figures();
    let sections: String = figures.iter().map(figure).collect();
    let claims = publish::claims(&figures);
    let heading = publish::HEADING;
    let rows = claims.iter().map(publish::row);
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>{TITLE}</title>\n<style>{CSS}</style>\n<h1>{TITLE}</h1>\n{}{READING}<h2>The papers' claims, worst first</h2>\n{}{sections}{}</html>\n",
        summary(&compact.origin, &figures),
        table(&heading, rows),
        model_text()
    )
}

fn summary(origin: &Origin, figures: &[Drawn]) -> String {
    let links: Vec<String> =
        figures.iter().map(|of| format!("<a href=\"#{}\">{}</a>", of.id, of.id)).collect();
    let said: String =
        publish::origin(origin, figures).iter().map(|text| format!("<p>{}</p>\n", escape(text))).collect();
    format!("{said}<p>{}</p>\n", links.join(" · "))
}

fn figure(figure: &Drawn) -> String {
    let plots: String =
        figure.panels.iter().filter(|panel| panel.is_drawn()).map(|panel| plot(figure, panel)).collect();
    let claims =
        figure.panels.iter().flat_map(|panel| panel.claims.iter().map(move |claim| (panel.title, claim)));
    let missing: Vec<String> = figure.panels.iter().flat_map(missing).collect();
    let missing = if missing.is_empty() {
        String::new()
    } else {
        format!("<ul class=soft>{}</ul>\n", missing.concat())
    };
    format!(
        "<section id=\"{}\"><h2>{}: {}</h2>\n<p class=soft>{}</p>\n<div class=\"charts plots\">{plots}</div>\n{}{}{}{}{missing}{}</section>\n",
        figure.id,
        escape(figure.paper),
        escape(figure.title),
        escape(figure.note),
        tables::computed(&figure.computed),
        tables::times(&figure.times),
        tables::memory(&figure.rows),
        claimed(claims),
        counts(figure)
    )
}

/// Formats a plot with its numbers below.
fn plot(figure: &Drawn, panel: &Plotted) -> String {
    let title = format!("{}: {} over {}", panel.title, figure.y, figure.x);
    format!(
        "<figure>{}<figcaption>{}</figcaption>{}{}</figure>\n",
        picture(figure, panel).svg(),
        escape(&title),
        numbers(figure, panel),
        serial(panel)
    )
}

/// Formats the serial parts of jobs.
fn serial(panel: &Plotted) -> String {
    let parts = publish::serial_parts(panel).join("; ");
    if parts.is_empty() {
        String::new()
    } else {
        format!("<p class=soft>Serial part, from the speed-up counted: {}.</p>", escape(&parts))
    }
}

/// Returns the plot by itself, without its table.
pub fn picture(figure: &Drawn, panel: &Plotted) -> Chart {
    let curves: Vec<_> = panel.series.iter().filter(|curve| curve.is_drawn()).map(drawing).collect();
    let mut said: Vec<Said> = panel.claims.iter().filter_map(|claim| said(claim, panel)).collect();
    // If the paper says two things about a place, only the first is drawn. The second is usually a factor of
    // another curve, so its mark would be as far off as our values of that curve.
    let mut places = Vec::new();
    said.retain(|said| {
        let place = (said.color, said.place.0 as u64);
        !places.contains(&place) && {
            places.push(place);
            true
        }
    });
    let axis = axis(&curves, &said);
    let title = format!("{}: {}", figure.paper, panel.title);
    let across = (figure.x, Axis::Linear);
    Chart { across, up: (figure.y, axis), heading: title.clone(), title, key: KEY, said, curves, ideal: None }
}

/// Returns a linear axis as in the papers, or a logarithmic one if a curve would end on the axis.
fn axis(curves: &[chart::Curve], said: &[Said]) -> Axis {
    let values = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let highest = values.chain(said.iter().map(|said| said.place.1)).fold(0.0, f64::max);
    let mut ends = curves.iter().filter_map(|curve| curve.points.last());
    let flat = ends.any(|end| end.1 > 0.0 && end.1 < LOWEST * highest);
    if flat { Axis::Logarithmic } else { Axis::Linear }
}

/// Returns the paper's number as a mark beside our curve, if that curve is drawn.
fn said(claim: &Compared, panel: &Plotted) -> Option<Said> {
    let (label, x, y) = claim.said?;
    let curve = panel.series.iter().find(|curve| curve.label == label && curve.is_drawn())?;
    let text = format!("{}, section {}: {}", claim.what, claim.place, claim.paper);
    Some(Said { place: (x, y), color: curve.color.0, text })
}

fn drawing(curve: &Curve) -> chart::Curve {
    let known_to = curve.points.iter().map(|point| point.0).fold(0.0, f64::max);
    let shown = || curve.line.iter().filter(|place| place.0 <= known_to.max(PAPER.into()));
    let points: Vec<_> = shown().map(|(x, y, _)| (*x, *y)).collect();
    let (color, hollow) = curve.color;
    chart::Curve {
        label: curve.label.to_owned(),
        color,
        hollow,
        points: if points.is_empty() { curve.points.clone() } else { points },
        known_to,
        band: shown().filter_map(|(x, low, high)| Some((*x, *low, (*high)?))).collect(),
        dots: curve.points.clone(),
    }
}

/// Formats a table with a row for each place that was counted, and one for the end of the papers' axes.
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

fn missing(panel: &Plotted) -> Vec<String> {
    let absent = panel.series.iter().filter(|curve| !curve.is_drawn());
    absent
        .map(|curve| format!("<li>{}: {}: not in this run</li>", escape(panel.title), escape(curve.label)))
        .collect()
}

fn claimed<'a>(claims: impl Iterator<Item = (&'static str, &'a Compared)>) -> String {
    let row = |(panel, claim): (&str, &Compared)| {
        let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
        let first = [format!("{panel}: {}", claim.what), claim.place.to_owned(), claim.paper.to_owned()];
        first.into_iter().chain([number(claim.counted), number(claim.ours)]).collect()
    };
    let rows: Vec<_> = claims.map(row).collect();
    let heading = ["", "section", "paper", "ours, counted", "ours, where the paper has it"];
    if rows.is_empty() { String::new() } else { table(&heading, rows) }
}

/// Formats the counts behind the curves.
fn counts(figure: &Drawn) -> String {
    let curves = figure.panels.iter().flat_map(|panel| panel.series.iter().map(move |curve| (panel, curve)));
    let row = |(panel, curve): (&Plotted, &Curve), of: &Counted| {
        let counts = of.counts?;
        let first = [
            format!("{}: {}", panel.title, curve.label),
            short(of.x),
            of.cpus.to_string(),
            of.boots.to_string(),
        ];
        let counts = counts
            .iter()
            .enumerate()
            .map(|(at, value)| if at == 0 { count(value.round() as i64) } else { short(*value) });
        Some(first.into_iter().chain(counts).collect())
    };
    let rows: Vec<_> =
        curves.flat_map(|of| of.1.counted.iter().filter_map(move |counted| row(of, counted))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let heading =
        ["", figure.x, "CPUs", "boots", "instructions", "transfers", "invalidations", "targets", "faults"];
    format!("<details><summary>Counts per round, in the mean</summary>{}</details>\n", table(&heading, rows))
}

#[cfg(test)]
mod tests {
    use super::super::compact::tests::results;
    use super::super::results::Results;
    use super::*;

    fn page_of(results: &Results) -> String {
        page(&Compact::of(results))
    }

    #[test]
    fn every_figure_has_its_plots_and_tables_and_nothing_comes_from_elsewhere() {
        let results = results();
        let page = page_of(&results);
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
    fn missing_runs_are_reported() {
        let mut results = results();
        results.figures[0].panels[0].series[0] = Curve { label: "RadixVM/8 MB", ..Curve::default() };
        assert!(page_of(&results).contains("Metis: RadixVM/8 MB: not in this run"));
    }

    #[test]
    fn a_curve_that_would_lie_on_the_axis_makes_it_logarithmic() {
        let curve =
            |height: f64| drawing(&super::super::curve::tests::curve("a", &[(1.0, height), (2.0, height)]));
        let said = Said { place: (2.0, 100.0), color: 0, text: String::new() };
        assert!(axis(&[curve(1.0), curve(10.0)], &[]) == Axis::Linear);
        assert!(axis(&[curve(1.0), curve(100.0)], &[]) == Axis::Logarithmic);
        assert!(axis(&[curve(1.0), curve(10.0)], &[said]) == Axis::Logarithmic);
        assert!(axis(&[curve(0.0), curve(100.0)], &[]) == Axis::Linear);
    }
}
