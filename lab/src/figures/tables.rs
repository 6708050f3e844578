//! The papers' tables on the page.

use super::computed::Table;
use super::times::{Split, Times};
use crate::memory::row::Row;
use launch::meter::report::html::table;
use launch::table::count;

/// Formats a computed table.
pub fn computed(of: &Option<Table>) -> String {
    of.as_ref().map_or_else(String::new, |of| table(&of.heading, of.rows.iter().cloned()))
}

/// Formats table 1.
pub fn times(rows: &[Times]) -> String {
    let parts = |Split { user, system, idle }: Split| {
        let all = user + system + idle;
        [user, system, idle].map(|part| format!("{:.0}%", 100.0 * part / all))
    };
    let row = |row: &Times| {
        let paper = row.paper.map_or_else(|| [(); 3].map(|()| "–".to_owned()), parts);
        let first = [format!("{}: {}", row.job, row.design), row.cpus.to_string()];
        let counted = row.instructions.map(|of| count(of.round() as i64));
        first.into_iter().chain(counted).chain(parts(row.ours)).chain(paper).collect()
    };
    let heading = [
        "",
        "CPUs",
        "instructions, user",
        "system",
        "time, user",
        "system",
        "idle",
        "paper, user",
        "system",
        "idle",
    ];
    if rows.is_empty() { String::new() } else { table(&heading, rows.iter().map(row)) }
}

/// Formats table 2.
pub fn memory(rows: &[Row]) -> String {
    let kib = |bytes: u64| format!("{} KiB", count(bytes.div_ceil(1024) as i64));
    let row = |row: &Row| {
        vec![
            row.program.clone(),
            kib(row.resident_bytes),
            kib(row.linux_bytes - row.linux_table_bytes),
            kib(row.linux_table_bytes),
            kib(row.metadata_bytes),
            kib(row.table_bytes),
            format!("{:.2}x", row.metadata_bytes as f64 / row.linux_bytes as f64),
            format!("{:.1}%", 100.0 * row.metadata_bytes as f64 / row.resident_bytes as f64),
        ]
    };
    let heading =
        ["", "RSS", "VMAs", "page table", "radix tree", "its tables", "tree of Linux", "tree of RSS"];
    if rows.is_empty() { String::new() } else { table(&heading, rows.iter().map(row)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parts_of_their_job_beside_the_papers() {
        let row = |paper| Times {
            job: "Metis",
            design: "Pure RCU",
            cpus: 8,
            instructions: [1234.0, 56.0],
            ours: Split::seconds(3.0, 1.0, 0.0),
            paper,
        };
        let html = times(&[row(Some(Split::seconds(1.0, 0.0, 1.0))), row(None)]);
        for word in ["Metis: Pure RCU", ">1,234<", ">75%<", ">25%<", ">50%<", ">–<"] {
            assert!(html.contains(word), "{word}: {html}");
        }
    }
}
