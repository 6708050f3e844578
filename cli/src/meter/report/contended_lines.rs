//! The page's list of contended lines, with the code on both sides.

use super::html::escape;
use super::{is_last, number};
use crate::meter::blame::{Blame, CodePair};
use crate::meter::row::Cell;

/// The number of lines that are shown without a click.
const OPEN: usize = 5;
/// Formats the lines at the largest number of CPUs. The lines at other numbers are behind a click.
pub fn blame(cells: &[Cell]) -> String {
    let most = cells.iter().filter(|cell| is_last(cell, cells));
    let others = cells.iter().filter(|cell| !is_last(cell, cells) && cell.row.cpus > 1);
    let shown: String = most.map(|cell| lines_of(cell, OPEN)).collect();
    let hidden: String = others.map(|cell| lines_of(cell, 0)).collect();
    format!(
        "<h2>Contended lines</h2>\n<p>The lines that were transferred most, with the code on both sides: the code that had the \
             line, and the code that took it. All numbers are per round.</p>\n{shown}{hidden}"
    )
}

fn lines_of(cell: &Cell, open: usize) -> String {
    let heading = format!("{}, {} CPUs", cell.system.label(), cell.row.cpus);
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
    let pair = |pair: &CodePair| {
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
