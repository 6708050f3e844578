//! The repository's record of a run: the compact file, pictures and page in docs/results/figures, and the
//! tables in docs/results/figures.md.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::claims::Compared;
use super::compact::{Compact, Origin};
use super::curve::{Counted, Curve};
use super::results::{Drawn, Plotted};
use super::{Plot, page};
use launch::meter::report::chart::short;
use launch::meter::report::style;
use launch::place;
use launch::table::count;

/// The folder of the kept files.
const FOLDER: &str = "docs/results/figures";
/// The compact file in any folder.
pub const COUNTS: &str = "counts.json";
/// The page that quotes the counts. Its generated part is between the two lines below.
const DOCUMENT: &str = "docs/results/figures.md";
const BEGIN: &str = "<!-- from figures/counts.json, by `radixvm bench figures --draw docs/results/figures/counts.json --publish` -->\n";
const END: &str = "<!-- end of what is generated -->\n";

/// Columns of the table of claims.
pub const HEADING: [&str; 7] =
    ["claim", "section", "paper", "here, counted", "counted to", "here, at the paper's place", "short by"];

/// A claim with its figure and plot.
pub struct Claimed<'a> {
    figure: &'a str,
    panel: &'a str,
    claim: &'a Compared,
}

/// Returns all claims. Those that fall short most come first, and those without a number of ours last.
pub fn claims(figures: &[Drawn]) -> Vec<Claimed<'_>> {
    let panels = figures.iter().flat_map(|figure| figure.panels.iter().map(move |panel| (figure.id, panel)));
    let mut claims: Vec<Claimed<'_>> = panels
        .flat_map(|(figure, panel)| {
            panel.claims.iter().map(move |claim| Claimed { figure, panel: panel.title, claim })
        })
        .collect();
    claims.sort_by(|a, b| b.claim.short.unwrap_or(0.0).total_cmp(&a.claim.short.unwrap_or(0.0)));
    claims
}

/// Returns the cells of a claim's row.
pub fn row(of: &Claimed<'_>) -> Vec<String> {
    let claim = of.claim;
    let number = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
    let short_by = match (claim.holds, claim.short) {
        (Some(false), Some(short)) => format!("{short:.2}x"),
        (Some(_), _) => "holds".to_owned(),
        (None, _) => "not known".to_owned(),
    };
    vec![
        of.name(),
        claim.place.split(": ").next().unwrap_or_default().to_owned(),
        claim.paper.to_owned(),
        number(claim.counted),
        claim.counted_to.map_or_else(|| "–".to_owned(), |cpus| format!("{cpus} CPUs")),
        number(claim.ours),
        short_by,
    ]
}

impl Claimed<'_> {
    fn name(&self) -> String {
        {
            let Claimed { figure, panel, claim: Compared { what, place, .. } } = self;
            // The section says more where several claims are about one curve.
            let more = place.split_once(": ").map_or_else(String::new, |(_, more)| format!(", {more}"));
            format!("{figure} {panel}: {what}{more}")
        }
    }
}

/// Returns notes for the reader of the counts, one paragraph each.
pub fn origin(origin: &Origin, figures: &[Drawn]) -> Vec<String> {
    let curves = figures.iter().flat_map(|figure| figure.panels.iter().flat_map(|panel| &panel.series));
    let counted = || curves.clone().flat_map(|curve| &curve.counted);
    let mut cpus: Vec<u16> = counted().map(|of| of.cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let most = cpus.last().copied().unwrap_or(0);
    let listed = cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let dirty = if origin.commit.ends_with("-dirty") {
        " (files had changed since, so the commit alone does not reproduce them)"
    } else {
        ""
    };
    let effort = if origin.effort == "quick" { "a quick run of few rounds" } else { "a full run" };
    let first = format!(
        "The counts are those of commit {}{dirty}. They come from {effort} under QEMU {}, on {}. Huge pages: {}. Guests have {listed} CPUs. \
         Everything beyond {most} is predicted by extrapolation, which is {:.0} % of an axis that ends at 80.",
        origin.commit,
        origin.qemu,
        origin.kernels.iter().map(kernel).collect::<Vec<_>>().join(" and "),
        origin.huge,
        100.0 * (1.0 - f64::from(most) / 80.0).max(0.0)
    );
    [first].into_iter().chain(origin.notes.iter().cloned()).collect()
}

/// Returns the name of a kernel. Linux reports only its version.
fn kernel(name: &String) -> String {
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("Linux {name}")
    } else {
        name.clone()
    }
}

/// Returns the serial part of each series, in words, if the plot is one of jobs.
pub fn serial_parts(panel: &Plotted) -> Vec<String> {
    let part = |curve: &Curve| {
        let part = curve.serial_part().filter(|_| panel.plot == Plot::Jobs)?;
        let bound =
            if part > 0.0 { format!(", so at most {:.0} times one core", 1.0 / part) } else { String::new() };
        Some(format!("{} {:.1} %{bound}", curve.label, 100.0 * part))
    };
    panel.series.iter().filter_map(part).collect()
}

/// Returns the generated part of the document.
fn document(compact: &Compact) -> String {
    let figures = compact.figures();
    let claims = claims(&figures);
    let said = origin(&compact.origin, &figures).join("\n\n");
    let table = markdown(&HEADING, claims.iter().map(row));
    format!(
        "{said}\n\n{}\n### Paper and here\n\nThe worst claims come first. Where the paper gives a number, the claim holds if ours falls short of it by a tenth at most.\n\n{table}\n{}{}{}\n{}",
        failures(&claims),
        computed(&figures),
        values(&figures),
        jobs(&figures),
        by_counts(&figures)
    )
}

/// Lists the claims that fall short, grouped by reason, and the claims without a number of ours.
fn failures(claims: &[Claimed<'_>]) -> String {
    let failed: Vec<_> = claims.iter().filter(|of| of.claim.holds == Some(false)).collect();
    let mut reasons: Vec<&str> = failed.iter().map(|of| of.claim.why).collect();
    let mut seen = Vec::new();
    reasons.retain(|why| {
        !seen.contains(why) && {
            seen.push(*why);
            true
        }
    });
    let item = |why: &str| {
        let of = failed.iter().filter(|of| of.claim.why == why);
        let ours = |of: &Claimed<'_>| of.claim.ours.map_or_else(String::new, short);
        let of: Vec<String> = of
            .map(|of| format!("{}: {} here, {} in the paper", of.name(), ours(of), of.claim.paper))
            .collect();
        let why = if why.is_empty() { "not explained yet" } else { why };
        format!("- **{}.** Reason: {why}.\n", of.join("; "))
    };
    let items: String = reasons.into_iter().map(item).collect();
    format!("### Claims that do not hold here\n\n{items}{}", unknown(claims))
}

/// Lists the claims about curves that this run lacks, or for which it counted too few CPUs.
fn unknown(claims: &[Claimed<'_>]) -> String {
    let unknown: Vec<String> =
        claims.iter().filter(|of| of.claim.holds.is_none()).map(Claimed::name).collect();
    if unknown.is_empty() {
        return String::new();
    }
    let why = "the run lacks the curve, or counted too few CPUs for a prediction, which needs two numbers of CPUs above that of the writers";
    format!("- **Not known: {}.** Reason: {why}.\n", unknown.join("; "))
}

/// Shows the tables that are computed.
fn computed(figures: &[Drawn]) -> String {
    let part = |figure: &Drawn| {
        let table = figure.computed.as_ref()?;
        let rows = markdown(&table.heading, table.rows.iter().cloned());
        let Drawn { paper, title, note, .. } = figure;
        Some(format!("### {paper}: {title}\n\n{note}\n\n{rows}\n"))
    };
    figures.iter().filter_map(part).collect()
}

/// Shows the values of plots of counts that are not those of a mean round.
fn values(figures: &[Drawn]) -> String {
    let panels = figures.iter().flat_map(|figure| figure.panels.iter().map(move |panel| (figure, panel)));
    let counted = |(_, panel): &(&Drawn, &Plotted)| panel.plot.is_count() && panel.is_drawn();
    let part = |(figure, panel): (&Drawn, &Plotted)| {
        let series = || panel.series.iter().filter(|curve| curve.is_drawn());
        let heading: Vec<&str> = [figure.x].into_iter().chain(series().map(|curve| curve.label)).collect();
        let places = series().next().map_or(&[][..], |curve| &curve.points);
        let row = |(x, _): &(f64, f64)| {
            let value = |curve: &Curve| curve.at(*x as u16).map_or_else(|| "–".to_owned(), whole);
            [short(*x)].into_iter().chain(series().map(value)).collect()
        };
        let rows = markdown(&heading, places.iter().map(row));
        format!("### {}: {}\n\n{}\n\n{rows}\n", figure.paper, panel.title, figure.note)
    };
    panels.filter(counted).map(part).collect()
}

/// Formats a count: whole from a hundred on.
fn whole(value: f64) -> String {
    if value < 100.0 { short(value) } else { count(value.round() as i64) }
}

fn jobs(figures: &[Drawn]) -> String {
    let item = |figure: &Drawn, panel: &Plotted| {
        let parts = serial_parts(panel);
        (!parts.is_empty()).then(|| format!("- {} {}: {}.\n", figure.id, panel.title, parts.join("; ")))
    };
    let items: String = figures
        .iter()
        .flat_map(|figure| figure.panels.iter().filter_map(move |panel| item(figure, panel)))
        .collect();
    format!(
        "### Serial parts of the jobs\n\nThe parts follow by Amdahl's law from the speed-up at the most CPUs counted. The prediction cannot pass these bounds.\n\n{items}"
    )
}

/// Formats the counts behind the plots of single operations, at the fewest and the most CPUs.
fn by_counts(figures: &[Drawn]) -> String {
    let heading =
        ["figure", "series", "at", "CPUs", "instructions", "transfers", "invalidations", "targets", "faults"];
    let rows = |figure: &Drawn, panel: &Plotted| -> Vec<Vec<String>> {
        if panel.plot == Plot::Jobs || panel.plot.is_count() {
            return Vec::new();
        }
        let ends = |curve: &Curve| -> Vec<Counted> {
            let mut ends: Vec<Counted> =
                curve.counted.first().into_iter().chain(curve.counted.last()).cloned().collect();
            ends.dedup_by_key(|of| of.x as u64);
            ends
        };
        let row = |curve: &Curve, of: &Counted| {
            let [instructions, rest @ ..] = of.counts?;
            let words = [
                format!("{} {}", figure.id, panel.title),
                curve.label.to_owned(),
                short(of.x),
                of.cpus.to_string(),
            ];
            let instructions = count(instructions.round() as i64);
            Some(words.into_iter().chain([instructions]).chain(rest.map(short)).collect())
        };
        panel
            .series
            .iter()
            .flat_map(|curve| ends(curve).into_iter().filter_map(move |of| row(curve, &of)))
            .collect()
    };
    let panels = figures.iter().flat_map(|figure| figure.panels.iter().map(move |panel| (figure, panel)));
    let mut seen = Vec::new();
    // Two figures may show the same runs, which get one row.
    let new = |row: &Vec<String>| {
        let run = row[1..].to_vec();
        let is_new = !seen.contains(&run);
        seen.push(run);
        is_new
    };
    let table = markdown(&heading, panels.flat_map(|(figure, panel)| rows(figure, panel)).filter(new));
    format!(
        "### By counts\n\nThese are means per round, at the first and the last place of each curve. The table leaves out figures of whole jobs.\n\n{table}"
    )
}

/// Formats a table.
fn markdown(heading: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let first = line(heading.iter().map(|cell| (*cell).to_owned()).collect());
    first + &format!("|{}\n", "---|".repeat(heading.len())) + &rows.map(line).collect::<String>()
}

/// Returns the files that are made from a compact file, by name: the file itself, a picture of each plot, and
/// the page.
///
/// # Errors
/// Fails if the counts cannot be written as JSON.
pub fn files(compact: &Compact) -> Result<Vec<(String, String)>> {
    let mut files = vec![(COUNTS.to_owned(), compact.text()?)];
    for figure in &compact.figures() {
        for panel in figure.panels.iter().filter(|panel| panel.is_drawn()) {
            let plain = panel.title.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            files.push((format!("{}-{plain}.svg", figure.id), page::picture(figure, panel).file(style::CSS)));
        }
    }
    files.push(("index.html".to_owned(), page::page(compact)));
    Ok(files)
}

/// Writes these files.
///
/// # Errors
/// Fails if the folder or a file cannot be written.
pub fn write(folder: &Path, files: &[(String, String)]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (name, text) in files {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Checks whether counts of this commit may be kept.
///
/// # Errors
/// Fails if the tree has changes, because the same kernel could not be built again.
pub fn check(commit: &str) -> Result<()> {
    ensure!(
        !commit.ends_with("-dirty") && commit != "unknown",
        "--publish keeps counts of a commit, and this tree is {commit}: commit the changes first"
    );
    Ok(())
}

/// Writes the kept files and the document of this repository.
///
/// # Errors
/// Fails if a file cannot be read or written, or if the document lacks its two lines.
pub fn publish(compact: &Compact) -> Result<()> {
    let path = place::root().join(DOCUMENT);
    let old = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let new = filled(&old, compact)?;
    write(&place::root().join(FOLDER), &files(compact)?)?;
    fs::write(&path, new).with_context(|| path.display().to_string())
}

/// Returns the kept counts with those of some figures from a newer run, which gets a note.
///
/// # Errors
/// Fails if the kept file cannot be read.
pub fn with_newer(newer: Compact, figures: &[&str]) -> Result<Compact> {
    let path = place::root().join(FOLDER).join(COUNTS);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut kept = Compact::parse(&text)?;
    let note = newer_note(&newer, figures);
    kept.replace(newer, figures, &note);
    Ok(kept)
}

/// Returns the note about figures that are newer than the others.
fn newer_note(newer: &Compact, figures: &[&str]) -> String {
    let mut cpus: Vec<u16> =
        newer.points.iter().filter(|point| point.boots > 0).map(|point| point.cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let cpus = cpus.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    format!("{}: counted at commit {}, in guests with {cpus} CPUs.", figures.join(", "), newer.origin.commit)
}

/// Returns the document with its generated part made anew.
fn filled(document_text: &str, compact: &Compact) -> Result<String> {
    let parts =
        document_text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let Some((head, tail)) = parts else { bail!("{DOCUMENT}: there are no two lines for what is generated") };
    Ok(format!("{head}{BEGIN}\n{}\n{END}{tail}", document(compact).trim_end()))
}

#[cfg(test)]
mod tests {
    use super::super::compact::tests::results;
    use super::*;

    fn kept() -> Compact {
        let path = place::root().join(FOLDER).join(COUNTS);
        Compact::parse(&fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn the_kept_page_pictures_and_tables_are_those_of_the_kept_counts() {
        let compact = kept();
        for (name, text) in files(&compact).unwrap() {
            let path = place::root().join(FOLDER).join(&name);
            let there = fs::read_to_string(&path).unwrap_or_default();
            assert!(
                without_model(&there) == without_model(&text),
                "{name} is another: radixvm bench figures --draw {FOLDER}/{COUNTS} --publish"
            );
        }
        let document = fs::read_to_string(place::root().join(DOCUMENT)).unwrap();
        assert!(
            filled(&document, &compact).unwrap() == document,
            "{DOCUMENT} has other tables than the counts give"
        );
    }

    /// Returns the page without its end, which describes the cost model and does not come from the counts.
    fn without_model(page: &str) -> &str {
        page.split("<h2>The cost model</h2>").next().unwrap_or_default()
    }

    #[test]
    fn a_claim_that_does_not_hold_has_a_reason() {
        let figures = kept().figures();
        let unexplained: Vec<String> = claims(&figures)
            .iter()
            .filter(|of| of.claim.holds == Some(false) && of.claim.why.is_empty())
            .map(Claimed::name)
            .collect();
        assert!(unexplained.is_empty(), "{unexplained:?}");
    }

    #[test]
    fn the_worst_claim_comes_first() {
        let compact = Compact::of(&results());
        let figures = compact.figures();
        let short: Vec<f64> = claims(&figures).iter().filter_map(|of| of.claim.short).collect();
        assert!(short.len() > 20 && short.windows(2).all(|pair| pair[0] >= pair[1]), "{short:?}");
    }

    #[test]
    fn figures_that_are_newer_are_named_with_their_commit() {
        let mut compact = Compact::of(&results());
        compact.origin.commit = "0123abc".to_owned();
        let note = newer_note(&compact, &["lodic10", "lodic11"]);
        assert_eq!(note, "lodic10, lodic11: counted at commit 0123abc, in guests with 1, 2, 4 CPUs.");
    }

    #[test]
    fn counts_of_a_changed_tree_are_not_kept() {
        assert!(check("0123abc").is_ok());
        let error = check("0123abc-dirty").unwrap_err().to_string();
        assert!(error.contains("commit the changes first"), "{error}");
        check("unknown").unwrap_err();
    }

    #[test]
    fn the_document_keeps_what_is_around() {
        let compact = Compact::of(&results());
        let text = filled(&format!("head\n{BEGIN}old\n{END}tail\n"), &compact).unwrap();
        assert!(text.starts_with("head\n") && text.ends_with("tail\n") && !text.contains("\nold\n"));
        assert_eq!(filled(&text, &compact).unwrap(), text);
        filled("nothing", &compact).unwrap_err();
    }
}
