//! A chart as SVG inside a page: curves over numbers of CPUs, or over another variable.

use std::fmt::Write;

use super::html::escape;
use super::scale::{Axis, BOTTOM, HEIGHT, LEFT, RIGHT, Scale, TOP, WIDTH, nice, powers_around};

/// An axis of numbers of CPUs that double: 1, 2, 4, ...
pub const CPUS: (&str, Axis) = ("CPUs", Axis::Logarithmic);
/// The height of one line of the heading, the legend or the key.
const LEGEND: f64 = 19.0;
/// The number of curves that a legend names below each other. More of them are in two columns.
const COLUMN: usize = 3;

/// One curve.
pub struct Curve {
    /// Its text in the legend.
    pub label: String,
    /// Its colour.
    pub color: usize,
    /// Set if its dots are hollow and its line is thin, because another curve has the same colour.
    pub hollow: bool,
    /// Its points: place and value.
    pub points: Vec<(f64, f64)>,
    /// The place from which on it is extrapolated, and dashed.
    pub known_to: f64,
    /// A range of values around it: place, low, high.
    pub band: Vec<(f64, f64, f64)>,
    /// The measured points.
    pub dots: Vec<(f64, f64)>,
}

/// A value from elsewhere for a place in the chart.
pub struct Said {
    /// The place, and the value there.
    pub place: (f64, f64),
    /// The colour of the curve that it is about.
    pub color: usize,
    /// Its source and its text.
    pub text: String,
}

/// The marks that the key explains.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A dot.
    Dot,
    /// A dashed line.
    Dashed,
    /// An area around a line.
    Shaded,
    /// A diamond.
    Diamond,
}

/// A chart with its curves.
pub struct Chart {
    /// The variable and the kind of the horizontal axis.
    pub across: (&'static str, Axis),
    /// The value, if the caption does not name it, and the kind of the vertical axis.
    pub up: (&'static str, Axis),
    /// Its title.
    pub title: String,
    /// A line above the chart, or empty if the page around it has one.
    pub heading: String,
    /// The meanings of the marks that are drawn.
    pub key: &'static [(Mark, &'static str)],
    /// The values from elsewhere.
    pub said: Vec<Said>,
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
        self.said.iter().for_each(|said| diamond(&mut svg, said, &scale));
        self.head(&mut svg);
        svg + "</svg>"
    }

    /// Draws the heading, the legend and the key, from above.
    fn head(&self, svg: &mut String) {
        if !self.heading.is_empty() {
            let (x, y) = (LEFT, TOP + 4.0);
            let _ =
                writeln!(svg, "<text class=\"heading\" x=\"{x}\" y=\"{y}\">{}</text>", escape(&self.heading));
        }
        let top = TOP + if self.heading.is_empty() { 0.0 } else { LEGEND };
        for (place, curve) in self.curves.iter().enumerate() {
            let (column, line) = (place / self.lines(), place % self.lines());
            let x = LEFT + 8.0 + (WIDTH - LEFT) / 2.0 * column as f64;
            legend(svg, curve, (x, top + LEGEND * line as f64 + 2.0));
        }
        let y = top + LEGEND * self.lines() as f64 + 2.0;
        let mut x = LEFT + 8.0;
        for (mark, text) in self.key.iter().filter(|(mark, _)| self.has(*mark)) {
            key(svg, *mark, text, (x, y));
            // Letters are narrower than they are high.
            x += 46.0 + 6.2 * text.chars().count() as f64;
        }
    }

    /// Returns the number of lines of the legend.
    fn lines(&self) -> usize {
        let curves = self.curves.len();
        if curves > COLUMN { curves.div_ceil(2) } else { curves.max(1) }
    }

    fn has(&self, mark: Mark) -> bool {
        match mark {
            Mark::Dot => self.curves.iter().any(|curve| !curve.dots.is_empty()),
            Mark::Dashed => self.curves.iter().any(Curve::goes_beyond),
            Mark::Shaded => self.curves.iter().any(|curve| curve.band.len() > 1),
            Mark::Diamond => !self.said.is_empty(),
        }
    }

    /// Returns the chart as a file of its own, with its title and its style.
    pub fn file(&self, style: &str) -> String {
        let root =
            format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" ");
        let body = self.svg().replacen("<svg ", &root, 1);
        let title = format!(
            "<style>{style}</style><title>{}</title><rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>",
            escape(&self.title)
        );
        let at = body.find('\n').unwrap_or(0);
        format!("{}{title}{}\n", &body[..at], &body[at..])
    }

    fn scale(&self) -> Scale {
        let drawn = || self.curves.iter().flat_map(|curve| curve.points.iter().chain(&curve.dots).copied());
        let points = || drawn().chain(self.said.iter().map(|said| said.place));
        let bands = self.curves.iter().flat_map(|curve| curve.band.iter().map(|(_, _, high)| *high));
        let right = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
        let high = points().map(|point| point.1).chain(bands).fold(0.0, f64::max);
        let positive = points().map(|point| point.1).filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        let (low, high) = match self.up.1 {
            Axis::Linear => (0.0, nice(high.max(0.1))),
            Axis::Logarithmic => powers_around(least.min(high), high),
        };
        let key = self.key.iter().any(|(mark, _)| self.has(*mark));
        let lines = self.lines() + usize::from(key) + usize::from(!self.heading.is_empty());
        let top = TOP + LEGEND * lines as f64;
        let whole = points().all(|point| point.0.fract() == 0.0);
        Scale { across: self.across.1, axis: self.up.1, right, low, high, top, whole }
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
            let style = curve.style();
            let _ = writeln!(svg, "<polyline class=\"{style}{class}\" points=\"{line}\"/>");
        }
    }
    for (x, y) in &curve.dots {
        let text = format!("{} {across}: {}", short(*x), short(*y));
        dot(svg, curve, (scale.x(*x), scale.y(*y)), &text);
    }
}

fn legend(svg: &mut String, curve: &Curve, (x, y): (f64, f64)) {
    let (style, end) = (curve.style(), x + 22.0);
    let _ = writeln!(svg, "<line class=\"{style}\" x1=\"{x}\" x2=\"{end}\" y1=\"{y}\" y2=\"{y}\" />");
    dot(svg, curve, (x + 11.0, y), "");
    name(svg, (x + 30.0, y), &curve.label);
}

fn name(svg: &mut String, (x, y): (f64, f64), text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y + 4.0, escape(text));
}

/// Draws a mark, which has no curve's colour, and its meaning.
fn key(svg: &mut String, mark: Mark, text: &str, (x, y): (f64, f64)) {
    let _ = match mark {
        Mark::Dot => writeln!(svg, "<circle class=\"key\" cx=\"{}\" cy=\"{y}\" r=\"3.5\"/>", x + 11.0),
        Mark::Dashed => {
            writeln!(
                svg,
                "<line class=\"key beyond\" x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" />",
                x + 22.0
            )
        }
        Mark::Shaded => {
            writeln!(svg, "<rect class=\"key band\" x=\"{x}\" y=\"{}\" width=\"22\" height=\"12\"/>", y - 6.0)
        }
        Mark::Diamond => writeln!(svg, "<path class=\"key said\" d=\"{}\"/>", rhombus((x + 11.0, y))),
    };
    name(svg, (x + 28.0, y), text);
}

fn rhombus((x, y): (f64, f64)) -> String {
    format!("M{:.1},{y:.1}L{x:.1},{:.1}L{:.1},{y:.1}L{x:.1},{:.1}Z", x - 6.0, y - 6.0, x + 6.0, y + 6.0)
}

fn diamond(svg: &mut String, Said { place, color, text }: &Said, scale: &Scale) {
    let shape = rhombus((scale.x(place.0), scale.y(place.1)));
    let _ =
        writeln!(svg, "<path class=\"said s{color}\" d=\"{shape}\"><title>{}</title></path>", escape(text));
}

/// Draws a dot of a curve. A pointer over it shows `text`.
fn dot(svg: &mut String, curve: &Curve, (x, y): (f64, f64), text: &str) {
    let (kind, color) = if curve.hollow { ("hollow s", curve.color) } else { ("f", curve.color) };
    let _ = write!(svg, "<circle class=\"{kind}{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"");
    let _ = if text.is_empty() {
        writeln!(svg, "/>")
    } else {
        writeln!(svg, "><title>{}</title></circle>", escape(text))
    };
}

impl Curve {
    /// Returns the classes of its line.
    fn style(&self) -> String {
        let thin = if self.hollow { " thin" } else { "" };
        format!("curve s{}{thin}", self.color)
    }

    fn goes_beyond(&self) -> bool {
        self.points.iter().filter(|point| point.0 >= self.known_to).count() > 1
    }
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
            hollow: false,
            dots: points.clone(),
            points,
            known_to,
            band: Vec::new(),
        }
    }

    const KEY: &[(Mark, &str)] =
        &[(Mark::Dashed, "guess"), (Mark::Shaded, "range"), (Mark::Diamond, "theirs")];

    fn chart(axis: Axis, curves: Vec<Curve>) -> Chart {
        let (title, heading) = ("t".to_owned(), String::new());
        Chart {
            across: CPUS,
            up: ("", axis),
            title,
            heading,
            key: KEY,
            said: Vec::new(),
            curves,
            ideal: None,
        }
    }

    #[test]
    fn the_key_explains_what_is_drawn_and_nothing_else() {
        let curves = || vec![curve(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)], 2.0)];
        let svg = chart(Axis::Linear, curves()).svg();
        assert!(svg.contains(">guess<") && !svg.contains(">range<") && !svg.contains(">theirs<"), "{svg}");
        let said = vec![Said { place: (4.0, 80.0), color: 1, text: "a paper: 80".to_owned() }];
        let svg = Chart { said, heading: "Above <all>".to_owned(), ..chart(Axis::Linear, curves()) }.svg();
        assert!(
            svg.contains(">theirs<") && svg.contains("a paper: 80") && svg.contains("Above &lt;all&gt;"),
            "{svg}"
        );
    }

    #[test]
    fn counts_are_solid_and_predictions_dashed() {
        let curves = vec![curve(&[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0), (8.0, 80.0)], 4.0)];
        let svg = Chart { ideal: Some(0), ..chart(Axis::Logarithmic, curves) }.svg();
        assert_eq!(svg.matches("<polyline class=\"curve").count(), 2, "{svg}");
        assert!(
            svg.contains("beyond") && svg.contains("class=\"ideal\"") && svg.contains("a &lt; b"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 4 + 1, "and one in the legend");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn nothing_but_zeroes_can_be_drawn() {
        for axis in [Axis::Linear, Axis::Logarithmic] {
            let curves = vec![curve(&[(1.0, 0.0), (4.0, 0.0)], 4.0)];
            let svg = Chart { ideal: Some(0), ..chart(axis, curves) }.svg();
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
