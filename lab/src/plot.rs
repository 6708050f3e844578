//! The plot: one panel per program, one line per system, rounds per second over CPUs.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::types::RangedCoordi32;
use plotters::prelude::*;

use super::row::Row;
use launch::guest::linux;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordi32, LogCoord<f64>>>;

const WIDTH: u32 = 1200;
const HEIGHT: u32 = 480;

/// A line of a panel: its rows, its name and its style.
struct Curve {
    system: &'static str,
    tables: Option<&'static str>,
    label: &'static str,
    color: RGBColor,
}

/// The colours are those that the systems have everywhere.
const CURVES: [Curve; 3] = [
    Curve {
        system: "radixvm",
        tables: Some("percore"),
        label: "RadixVM, per-core tables",
        color: RGBColor(0, 96, 176),
    },
    Curve {
        system: "radixvm",
        tables: Some("shared"),
        label: "RadixVM, shared table",
        color: RGBColor(217, 130, 0),
    },
    Curve { system: "linux", tables: None, label: "stock Linux", color: RGBColor(110, 119, 129) },
];

impl Curve {
    /// Returns the name of the curve. That of the stock kernel has its version.
    fn label(&self) -> String {
        if self.system == "linux" { linux::name() } else { self.label.to_owned() }
    }

    fn owns(&self, row: &Row) -> bool {
        row.system == self.system && row.tables.as_deref() == self.tables
    }
}

/// Draws the rows as SVG.
pub fn svg(rows: &[Row]) -> Result<String> {
    let mut svg = String::new();
    paint(rows, &mut svg).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    Ok(svg)
}

type Painted = Result<(), Box<dyn std::error::Error>>;

fn paint(rows: &[Row], svg: &mut String) -> Painted {
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&title(), ("sans-serif", 22))?;
    let mut programs: Vec<&str> = rows.iter().map(|row| row.program).collect();
    programs.dedup();
    for (area, program) in root.split_evenly((1, programs.len().max(1))).iter().zip(programs) {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.program == program).collect();
        panel(area, program, &rows)?;
    }
    root.present()?;
    Ok(())
}

fn title() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "Rounds of mmap, write, munmap per second, on a logarithmic scale (processors here: {processors})"
    )
}

fn panel(area: &Area<'_>, program: &str, rows: &[&Row]) -> Painted {
    let mut cpus: Vec<u16> = rows.iter().map(|row| row.cpus).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let speeds = || rows.iter().map(|row| row.rounds_per_s.max(1.0));
    // Room for the legend above, and for the slowest curve below.
    let range = speeds().fold(f64::INFINITY, f64::min) / 2.0..speeds().fold(1.0, f64::max) * 20.0;
    // CPUs are evenly spaced. On a linear axis 1, 2, 4, 8 would crowd on the left.
    let right = cpus.len().max(2) as i32 - 1;
    let mut builder = ChartBuilder::on(area);
    builder.caption(program, ("sans-serif", 20)).margin(12).x_label_area_size(44).y_label_area_size(64);
    let mut chart = builder.build_cartesian_2d(0..right, range.log_scale())?;
    axes(&mut chart, &cpus)?;
    CURVES.iter().try_for_each(|curve| draw_curve(&mut chart, curve, rows, &cpus))?;
    legend(&mut chart)
}

fn axes(chart: &mut Chart<'_>, cpus: &[u16]) -> Painted {
    let label = |place: &i32| cpus.get(*place as usize).map(u16::to_string).unwrap_or_default();
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().light_line_style(WHITE).label_style(("sans-serif", 14));
    mesh.x_labels(cpus.len()).x_label_formatter(&label).x_desc("CPUs");
    mesh.y_label_formatter(&|speed| short(*speed)).y_desc("rounds/s");
    Ok(mesh.draw()?)
}

fn draw_curve(chart: &mut Chart<'_>, curve: &Curve, rows: &[&Row], cpus: &[u16]) -> Painted {
    let place = |cpu: u16| cpus.iter().position(|other| *other == cpu).unwrap_or(0) as i32;
    let owned = rows.iter().filter(|row| curve.owns(row));
    let points: Vec<(i32, f64)> = owned.map(|row| (place(row.cpus), row.rounds_per_s)).collect();
    let style = curve.color.stroke_width(2);
    let drawn = chart.draw_series(LineSeries::new(points, style).point_size(4))?;
    drawn.label(curve.label()).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    Ok(())
}

fn legend<'a>(chart: &mut Chart<'a>) -> Painted {
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::UpperLeft).label_font(("sans-serif", 13));
    Ok(labels.background_style(WHITE.mix(0.8)).draw()?)
}

/// Formats a number with few digits: 12500 as 12.5k.
fn short(number: f64) -> String {
    let (number, unit) = match number {
        1e6.. => (number / 1e6, "M"),
        1e3.. => (number / 1e3, "k"),
        _ => return format!("{number:.0}"),
    };
    format!("{number:.1}{unit}").replace(".0", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use launch::guest::system::System;
    use launch::meter::report::{palette, style};

    #[test]
    fn every_program_and_system_is_drawn() {
        let report = r#"{"seconds":2,"tsc":5,"minor_faults":7,"rounds":10000}"#;
        let report = serde_json::from_str(report).unwrap();
        let mut rows = Vec::new();
        for program in ["local", "pipeline"] {
            for cpus in [1, 2, 4] {
                rows.extend(
                    [System::PERCORE, System::Linux]
                        .map(|system| Row::new(program, system, "6.1", cpus, &report)),
                );
            }
        }
        let mut svg = String::new();
        paint(&rows, &mut svg).unwrap();
        for word in ["local", "pipeline", "stock Linux", "per-core", "CPUs", "rounds/s"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.matches("<polyline").count() >= 4);
    }

    #[test]
    fn systems_have_the_colours_that_they_have_elsewhere() {
        for (curve, system) in CURVES.iter().zip([System::PERCORE, System::SHARED, System::Linux]) {
            let RGBColor(red, green, blue) = curve.color;
            let named = format!("--c{}: #{red:02x}{green:02x}{blue:02x};", palette::of(system));
            assert!(style::CSS.contains(&named), "{}: {named}", curve.label);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 950.0, 12_500.0, 20_000.0, 2e6].map(short), ["0", "950", "12.5k", "20k", "2M"]);
    }
}
