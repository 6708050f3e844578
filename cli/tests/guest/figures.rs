//! The papers' figures, with few rounds on one and two CPUs. All of them are there, with everything in this
//! build.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{bench, scratch};

const FIGURES: [&str; 28] = [
    "fig4",
    "fig5",
    "table2",
    "tables",
    "fig6",
    "fig7",
    "fig8",
    "fig9",
    "fig13",
    "fig14",
    "fig15",
    "table1",
    "fig16",
    "fig17",
    "fig18",
    "lodic7",
    "lodic8",
    "lodic9",
    "lodic-table1",
    "lodic10",
    "lodic11",
    "lodic-equation1",
    "lodic12",
    "lodic-table2",
    "lodic13",
    "lodic14",
    "lodic15",
    "lodic-table3",
];

/// Returns the JSON of `radixvm bench figures --quick OPTIONS`, run in this folder.
fn figures(folder: &Path, options: &[&str]) -> Value {
    let mut command = bench("3600");
    command.args(["figures", "--quick", "--report"]).arg(folder).args(options);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&fs::read(folder.join("figures.json")).unwrap()).unwrap()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// Returns every series of a figure, with its panel's name before its own.
fn series(figure: &Value) -> impl Iterator<Item = (String, &Value)> {
    let name = |panel: &Value, series: &Value| {
        format!("{} {} {}", figure["id"], panel["title"], series["label"]).replace('"', "")
    };
    let panels = list(figure, "panels").iter();
    panels.flat_map(move |panel| list(panel, "series").iter().map(move |of| (name(panel, of), of)))
}

/// Checks that a series has valid points, or that its design or program is not in this build.
fn is_drawn_or_absent(name: &str, series: &Value) {
    assert!(list(series, "skipped").is_empty(), "{name}: {series}");
    let points = list(series, "points");
    const BY_ARGUMENT: [&str; 6] = ["fig18", "lodic9", "lodic10", "lodic11", "lodic12", "lodic-table3"];
    let by_argument = BY_ARGUMENT.iter().any(|figure| name.starts_with(figure));
    let sizes = if by_argument { 2 } else { 2 - series["apart"].as_u64().unwrap().min(2) };
    let sizes = if series["not_in_this_build"].is_null() { sizes } else { 0 };
    assert_eq!(points.len() as u64, sizes, "{name}: {series}");
    assert!(list(series, "boots").iter().all(|boots| *boots == 1), "{name} is a quick look: {series}");
    let least = if name.starts_with("tables") { 0.0 } else { f64::MIN_POSITIVE };
    assert!(points.iter().all(|point| point[1].as_f64().unwrap() >= least), "{name}: {series}");
}

fn is_measured(results: &Value, wanted: &str) {
    let all = list(results, "figures").iter().flat_map(series);
    let points = all.filter(|(name, _)| name == wanted).map(|(_, series)| list(series, "points").len());
    assert_eq!(points.sum::<usize>(), 2, "{wanted}");
}

/// Checks the paper's claims about its own design: no line is transferred and no core is interrupted,
/// whatever else holds on this machine.
fn local_is_free(results: &Value) {
    let all = list(results, "figures").iter().flat_map(series);
    let (_, local) = all.into_iter().find(|(name, _)| name == "fig5 local RadixVM").expect("it is there");
    for row in list(local, "counts") {
        assert_eq!(
            (&row["transfers"]["median"], &row["ipi_targets"]["median"]),
            (&0.0.into(), &0.0.into()),
            "{row}"
        );
    }
}

#[test]
fn every_figure_is_drawn_and_a_stopped_command_goes_on() {
    let folder = scratch("figures");
    let results = figures(&folder, &["--fresh"]);
    let ids: Vec<_> = list(&results, "figures").iter().map(|figure| figure["id"].as_str().unwrap()).collect();
    assert_eq!(ids, FIGURES);
    list(&results, "figures").iter().flat_map(series).for_each(|(name, of)| is_drawn_or_absent(&name, of));
    for wanted in
        ["fig4 Metis Linux/64 KB", "fig5 pipeline Linux", "fig9 global Shared", "fig16 faults alone RadixVM"]
    {
        is_measured(&results, wanted);
    }
    local_is_free(&results);
    tables_are_filled(&results);
    draws_again(&folder);
    let page = fs::read_to_string(folder.join("index.html")).unwrap();
    assert!(FIGURES.iter().all(|id| page.contains(&format!("id=\"{id}\""))));
    goes_on(&folder, &results);
}

/// Checks that table 1 has seven systems for each of three jobs, each with time in the program and in the
/// kernel, and that table 2 has memory.
fn tables_are_filled(results: &Value) {
    let table = |id: &str| list(results, "figures").iter().find(|figure| figure["id"] == id).unwrap();
    let times = list(table("table1"), "times");
    assert_eq!(times.len(), 21, "{times:?}");
    let above_zero = |value: &Value| value.as_f64() > Some(0.0);
    for row in times {
        assert!(
            list(row, "instructions").iter().all(above_zero) && above_zero(&row["ours"]["system"]),
            "{row}"
        );
    }
    assert!(list(table("table2"), "rows").iter().all(|row| above_zero(&row["metadata_bytes"])));
}

/// The compact file gives the page and the pictures without a guest.
fn draws_again(folder: &Path) {
    let again = scratch("figures-again");
    let output = bench("600")
        .args(["figures", "--draw"])
        .arg(folder.join("counts.json"))
        .arg("--report")
        .arg(&again)
        .output();
    assert!(output.as_ref().is_ok_and(|output| output.status.success()), "{output:?}");
    for name in ["counts.json", "index.html", "fig5-local.svg"] {
        assert!(fs::read(folder.join(name)).unwrap() == fs::read(again.join(name)).unwrap(), "{name}");
    }
}

/// Removes one result, as if the command had been stopped before that run, and checks that only that run is
/// repeated.
fn goes_on(folder: &Path, before: &Value) {
    let all = before["measured"].as_u64().unwrap();
    assert_eq!(before["kept"], 0);
    let lost = folder.join("runs/local-metered-radix-percore-refcache-2cpus.json");
    fs::remove_file(lost).unwrap();
    let first = folder.join("first.json");
    fs::rename(folder.join("figures.json"), &first).unwrap();
    let after = figures(folder, &[]);
    assert_eq!((after["measured"].as_u64(), after["kept"].as_u64()), (Some(1), Some(all - 1)));
    let mut compare = bench("600");
    let output = compare.args(["figures", "--compare"]).args([first, folder.join("counts.json")]).output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("counts agree within 5 %"), "{text}");
}
