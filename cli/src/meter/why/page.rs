//! The answer as a page. It is one file and refers to no other.

use super::modules::Frame;
use super::words::{number, percent, sentences, verdict};
use super::{Counts, Measured, Place};
use crate::meter::report::html::{escape, table};
use crate::meter::report::style::CSS;

/// Places of each system that the page shows.
const PLACES: usize = 25;

/// Formats the page about a command line.
pub fn page(measured: &[Measured], command: &str) -> String {
    let title = format!("Why is {} slow?", escape(command));
    let told: String =
        sentences(measured).iter().map(|sentence| format!("<li>{}</li>\n", escape(sentence))).collect();
    let systems: String = measured.iter().map(system).collect();
    format!(
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{CSS}</style>\n<h1>{title}</h1>\n<p><strong>Verdict:</strong> {}</p>\n\
         <ul>\n{told}</ul>\n{}{systems}{NOTES}</html>\n",
        escape(&verdict(measured)),
        totals(measured)
    )
}

const NOTES: &str = "<h2>What is counted</h2>\n<p class=soft>A line moves when a CPU finds it in another CPU's cache, or has to take \
    other CPUs' copies away. QEMU executes the program by translation, and a plugin counts. Cycles are those of the cost model of \
    `radixvm contend`. Times asleep, page walks and instruction fetches are not counted. docs/guide/why.md and docs/guide/meter.md \
    say more.</p>\n";

fn totals(measured: &[Measured]) -> String {
    let heading = [
        "system",
        "kernel",
        "CPUs",
        "user instructions",
        "kernel instructions",
        "the program's lines",
        "the kernel's lines",
        "interrupts",
        "the program's part of cycles",
        "the kernel's part of cycles",
    ];
    let row = |one: &Measured| {
        vec![
            one.system.clone(),
            one.kernel.clone(),
            one.cpus.to_string(),
            number(one.user_instructions),
            number(one.kernel_instructions),
            number(one.user_lines),
            number(one.kernel_lines),
            number(one.interrupts),
            percent(one.user_part),
            percent(one.kernel_part),
        ]
    };
    format!("<h2>Totals</h2>\n{}", table(&heading, measured.iter().map(row)))
}

fn system(one: &Measured) -> String {
    let heading = [
        "call",
        "calls",
        "instructions",
        "lines",
        "copies lost",
        "interrupts",
        "lines per call",
        "interrupts per call",
    ];
    let calls = table(&heading, one.calls.iter().map(call));
    let places: String = one.places.iter().take(PLACES).map(|each| place(one, each)).collect();
    let own =
        table(&["place", "lines"], one.own.iter().map(|own| vec![own.place.clone(), number(own.lines)]));
    format!(
        "<h2>{}</h2>\n<h3>The kernel's work by call</h3>\n{calls}<h3>By place in the program</h3>\n{places}\
         <h3>The program's own lines</h3>\n{own}",
        escape(&one.system)
    )
}

fn call(counts: &Counts) -> Vec<String> {
    let per_call = |count| match counts.count {
        0 => "–".to_owned(),
        _ => format!("{:.2}", counts.per_call(count)),
    };
    vec![
        counts.call.clone(),
        number(counts.count),
        number(counts.instructions),
        number(counts.lines),
        number(counts.invalidations),
        number(counts.interrupts),
        per_call(counts.lines),
        per_call(counts.interrupts),
    ]
}

fn place(one: &Measured, place: &Place) -> String {
    let Counts { call, count, lines, interrupts, .. } = &place.counts;
    let share = percent(*lines as f64 / one.kernel_lines.max(1) as f64);
    let frames: String = place.frames.iter().map(frame).collect();
    let kernel: Vec<String> = place
        .kernel
        .iter()
        .map(|(name, count)| format!("<code>{}</code> {}", escape(name), number(*count)))
        .collect();
    format!(
        "<details class=line><summary>{share}: {} from {}</summary><p>{} calls, {} lines, {} interrupts. In the kernel: {}.</p>\
         <ol>{frames}</ol></details>\n",
        escape(call),
        escape(&place.place),
        number(*count),
        number(*lines),
        number(*interrupts),
        if kernel.is_empty() { "no lines".to_owned() } else { kernel.join(", ") },
    )
}

fn frame(frame: &Frame) -> String {
    let file = frame
        .file
        .as_ref()
        .map_or_else(String::new, |file| format!(" in {}", escape(&file.display().to_string())));
    format!("<li><code>{}</code><span class=soft>{file}</span></li>", escape(&frame.describe()))
}

#[cfg(test)]
mod tests {
    use super::super::words::tests::example;
    use super::*;

    #[test]
    fn the_page_is_whole_and_refers_to_no_other_file() {
        let page = page(&example(), "prog <arg>");
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(
            page.contains("Why is prog &lt;arg&gt; slow?")
                && page.contains("<strong>Verdict:</strong> the kernel makes it slow")
        );
        assert!(page.contains("grow at arena.c:212") && page.contains("rwsem_down_write_slowpath"));
        assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("<script"));
        assert_eq!(page.matches("<ul>").count(), page.matches("</ul>").count());
        assert_eq!(page.matches("<details").count(), page.matches("</details>").count());
    }
}
