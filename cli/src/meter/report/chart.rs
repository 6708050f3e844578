//! A chart as SVG inside a page: curves over numbers of CPUs, or over another variable.

use std::fmt::Write;

use super::html::escape;
use super::scale::{Axis, BOTTOM, HEIGHT, LEFT, RIGHT, Scale, TOP, WIDTH, nice, powers_around};

/// An axis of numbers of CPUs that double: 1, 2, 4, ...
pub const CPUS: (&str, Axis) = ("CPUs", Axis::Logarithmic);
/// The height of one line of the legend. Each curve has one.
const LEGEND: f64 = 20.0;

/// One curve.
pub struct Curve {
    /// Its text in the legend.
    pub label: String,
    /// Its colour.
    pub color: usize,
    /// Its points: place and value.
    pub points: Vec<(f64, f64)>,
    /// The place from which on it is extrapolated, and dashed.
    pub known_to: f64,
    /// A range of values around it: place, low, high.
    pub band: Vec<(f64, f64, f64)>,
    /// The measured points.
    pub dots: Vec<(f64, f64)>,
}

/// A chart with its curves.
pub struct Chart {
    /// The variable and the kind of the horizontal axis.
    pub across: (&'static str, Axis),
    /// The value, if the caption does not name it, and the kind of the vertical axis.
    pub up: (&'static str, Axis),
    /// Its title.
    pub title: String,
    /// The curves.
    pub curves: Vec<Curve>,
    /// The curve through whose first point a line of perfect scaling is drawn.
    pub ideal: Option<usize>,
}

impl Chart {
    /// Returns the chart as an element of a page.
    pub fn svg(&self) -> String {
        let scale = self.scale();
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            escape(&self.title)
        );
        grid(&mut svg, &scale);
        self.name_axes(&mut svg);
        self.draw_ideal(&mut svg, &scale);
        self.curves.iter().for_each(|curve| draw(&mut svg, curve, &scale, self.across.0));
        self.curves.iter().enumerate().for_each(|(place, curve)| legend(&mut svg, curve, place));
        svg + "</svg>"
    }

    /// Returns the chart as a file of its own, with its title and its style.
    pub fn file(&self, style: &str) -> String {
        let root = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"360\" ";
        let body = self.svg().replacen("<svg ", root, 1);
        let title = format!(
            "<style>{style}</style><title>{}</title><rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>",
            escape(&self.title)
        );
        let at = body.find('\n').unwrap_or(0);
        format!("{}{title}{}\n", &body[..at], &body[at..])
    }

    fn scale(&self) -> Scale {
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter().chain(&curve.dots).copied());
        let bands = self.curves.iter().flat_map(|curve| curve.band.iter().map(|(_, _, high)| *high));
        let right = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
        let high = points().map(|point| point.1).chain(bands).fold(0.0, f64::max);
        let positive = points().map(|point| point.1).filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        let (low, high) = match self.up.1 {
            Axis::Linear => (0.0, nice(high.max(0.1))),
            Axis::Logarithmic => powers_around(least.min(high), high),
        };
        let top = TOP + LEGEND * self.curves.len() as f64;
        Scale { across: self.across.1, axis: self.up.1, right, low, high, top }
    }

    fn name_axes(&self, svg: &mut String) {
        let (middle, bottom) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0);
        let side = format!("transform=\"translate(12 {}) rotate(-90)\"", (HEIGHT - BOTTOM) / 2.0);
        let names = [(format!("x=\"{middle:.1}\" y=\"{bottom}\""), self.across.0), (side, self.up.0)];
        for (place, name) in names.iter().filter(|(_, name)| !name.is_empty()) {
            let _ =
                writeln!(svg, "<text class=\"soft\" {place} text-anchor=\"middle\">{}</text>", escape(name));
        }
    }

    fn draw_ideal(&self, svg: &mut String, scale: &Scale) {
        let curve = self.ideal.and_then(|place| self.curves.get(place));
        let Some(&(first, value)) = curve.and_then(|curve| curve.points.first()) else { return };
        // The line ends at the top of the chart.
        let end = scale.right.min(first * scale.high / value.max(f64::MIN_POSITIVE));
        let line = scale.places([(first, value), (end, value * end / first)].into_iter());
        let _ = writeln!(svg, "<polyline class=\"ideal\" points=\"{line}\"/>");
    }
}

fn grid(svg: &mut String, scale: &Scale) {
    for value in scale.ticks() {
        let (y, right) = (scale.y(value), WIDTH - RIGHT);
        let _ =
            writeln!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" />");
        let _ = writeln!(
            svg,
            "<text class=\"soft\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            short(value)
        );
    }
    let bottom = HEIGHT - BOTTOM;
    for value in scale.marks() {
        let _ = writeln!(
            svg,
            "<text class=\"soft\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            scale.x(value),
            bottom + 18.0,
            short(value)
        );
    }
}

fn draw(svg: &mut String, curve: &Curve, scale: &Scale, across: &str) {
    let color = curve.color;
    if !curve.band.is_empty() {
        let upper = curve.band.iter().map(|(x, _, high)| (*x, *high));
        let lower = curve.band.iter().rev().map(|(x, low, _)| (*x, *low));
        let _ = writeln!(
            svg,
            "<polygon class=\"band f{color}\" points=\"{}\"/>",
            scale.places(upper.chain(lower))
        );
    }
    let known = curve.points.iter().copied().filter(|point| point.0 <= curve.known_to);
    let beyond = curve.points.iter().copied().filter(|point| point.0 >= curve.known_to);
    for (class, line) in [("", scale.places(known)), (" beyond", scale.places(beyond))] {
        if line.contains(' ') {
            let _ = writeln!(svg, "<polyline class=\"curve s{color}{class}\" points=\"{line}\"/>");
        }
    }
    for dot in &curve.dots {
        let (x, y) = (scale.x(dot.0), scale.y(dot.1));
        let _ = writeln!(
            svg,
            "<circle class=\"f{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{} {across}: {}</title></circle>",
            short(dot.0),
            short(dot.1)
        );
    }
}

fn legend(svg: &mut String, curve: &Curve, place: usize) {
    let (x, y, color) = (LEFT + 8.0, TOP + LEGEND * place as f64 + 2.0, curve.color);
    let _ = writeln!(
        svg,
        "<line class=\"curve s{color}\" x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" />",
        x + 22.0
    );
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", x + 30.0, y + 4.0, escape(&curve.label));
}

/// Formats a number with few digits: 12500 as 12.5k.
pub fn short(number: f64) -> String {
    let (number, unit) = match number {
        1e9.. => (number / 1e9, "G"),
        1e6.. => (number / 1e6, "M"),
        1e4.. => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let text = format!("{number:.2}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(f64, f64)], known_to: f64) -> Curve {
        let points = points.to_vec();
        Curve {
            label: "a < b".to_owned(),
            color: 1,
            dots: points.clone(),
            points,
            known_to,
            band: Vec::new(),
        }
    }

    #[test]
    fn what_is_known_is_solid_and_what_is_not_is_dashed() {
        let curves = vec![curve(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0), (8.0, 80.0)], 4.0)];
        let svg = Chart {
            across: CPUS,
            up: ("", Axis::Logarithmic),
            title: "t".to_owned(),
            curves,
            ideal: Some(0),
        }
        .svg();
        assert_eq!(svg.matches("<polyline class=\"curve").count(), 2, "{svg}");
        assert!(
            svg.contains("beyond") && svg.contains("class=\"ideal\"") && svg.contains("a &lt; b"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn nothing_but_zeroes_can_be_drawn() {
        for axis in [Axis::Linear, Axis::Logarithmic] {
            let curves = vec![curve(&[(1.0, 0.0), (4.0, 0.0)], 4.0)];
            let svg =
                Chart { across: CPUS, up: ("", axis), title: String::new(), curves, ideal: Some(0) }.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(
            [0.0, 0.25, 57.0, 2500.0, 12_500.0, 3e6].map(short),
            ["0", "0.25", "57", "2500", "12.5k", "3M"]
        );
        assert_eq!([nice(0.1), nice(57.0), nice(3.0)], [0.1, 80.0, 4.0]);
    }
}
