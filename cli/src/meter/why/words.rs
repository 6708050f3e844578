//! The answer in words: a table, a sentence for each place, and a verdict.

use super::place::{FAULTS, INTERRUPTS, NOWHERE};
use super::{Counts, Measured, Place};
use crate::table::{Table, count};

/// The part of the cycles of the kernel's lines and interrupts from which on a place is told.
const TOLD: f64 = 0.05;
/// Places that are told.
const MOST: usize = 5;
/// The part of all cycles below which lines and interrupts do not matter.
const MATTERS: f64 = 0.05;
/// The calls from a place that are more than a program's start and end.
const REPEATED: u64 = 50;
/// The calls that change or fill an address space.
const MEMORY: [&str; 8] = ["mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "mlock", FAULTS];

/// Formats the whole answer.
pub fn text(measured: &[Measured]) -> String {
    let sentences: String =
        sentences(measured).iter().map(|sentence| wrapped(sentence, "  ") + "\n").collect();
    format!(
        "{}\n{}{sentences}\nVerdict: {}\n",
        table(measured),
        notes(measured),
        wrapped(&verdict(measured), "")
    )
}

fn table(measured: &[Measured]) -> Table {
    let mut table = Table::new([
        "system",
        "CPUs",
        "instructions",
        "kernel's",
        "lines moved",
        "kernel's",
        "interrupts",
        "kernel's part of cycles",
    ]);
    for one in measured {
        table.row([
            one.system.clone(),
            one.cpus.to_string(),
            count((one.user_instructions + one.kernel_instructions) as i64),
            count(one.kernel_instructions as i64),
            count((one.user_lines + one.kernel_lines) as i64),
            count(one.kernel_lines as i64),
            count(one.interrupts as i64),
            percent(one.kernel_part),
        ]);
    }
    table
}

fn notes(measured: &[Measured]) -> String {
    let escaped = measured.iter().filter(|one| one.escapes > 50);
    escaped
        .map(|one| {
            format!(
                "{}: {} times a CPU could not be kept in step with the others, because this machine is busy. Counts may be \
                 too high.\n",
                one.system, one.escapes
            )
        })
        .collect()
}

/// Returns a sentence for each place that moves many of the kernel's lines or sends many of its interrupts.
pub fn sentences(measured: &[Measured]) -> Vec<String> {
    let Some((worst, others)) = split(measured) else { return Vec::new() };
    let told: Vec<&Place> = worst.places.iter().filter(|place| matters(worst, place)).take(MOST).collect();
    let each = told.iter().map(|place| sentence(worst, place, &others));
    let mut sentences: Vec<String> = each.chain(scattered(worst, &told)).collect();
    if let Some(first) = sentences.first_mut() {
        let rest = first.replacen(" come from", " of the kernel's cache-line moves come from", 1);
        *first = format!("On {} at {} CPUs {rest}", worst.system, worst.cpus);
    }
    sentences
}

/// Returns stock Linux, or the first system if that was not measured, and the others.
fn split(measured: &[Measured]) -> Option<(&Measured, Vec<&Measured>)> {
    let first = measured.iter().position(|one| one.is_linux).unwrap_or(0);
    let others = measured.iter().enumerate().filter(|(number, _)| *number != first).map(|(_, one)| one);
    Some((measured.get(first)?, others.collect()))
}

/// Returns whether a place takes enough of the cycles that the kernel's lines and interrupts cost.
fn matters(measured: &Measured, place: &Place) -> bool {
    let all: f64 = measured.calls.iter().map(|counts| counts.cycles(measured.cpus)).sum();
    place.counts.cycles(measured.cpus) >= TOLD * all
}

/// Returns a sentence for each call of which the places that are told are the smaller part.
fn scattered(measured: &Measured, told: &[&Place]) -> Vec<String> {
    let lines = |counts: &Counts| part(counts.lines, measured.kernel_lines);
    let is_scattered = |counts: &&Counts| {
        let own = told.iter().filter(|place| place.counts.call == counts.call);
        let known: u64 = own.map(|place| place.counts.lines).sum();
        lines(counts) >= 2.0 * TOLD && known * 2 < counts.lines
    };
    let calls = measured.calls.iter().filter(is_scattered);
    calls
        .map(|counts| {
            let places = measured.places.iter().filter(|place| place.counts.call == counts.call).count();
            format!("{} come from {} at {places} places together.", percent(lines(counts)), counts.call)
        })
        .collect()
}

fn part(count: u64, all: u64) -> f64 {
    count as f64 / all.max(1) as f64
}

fn sentence(measured: &Measured, place: &Place, others: &[&Measured]) -> String {
    let counts = &place.counts;
    let begin = percent(part(counts.lines, measured.kernel_lines));
    let functions: Vec<&str> = place.kernel.iter().take(2).map(|(name, _)| name.as_str()).collect();
    let kernel =
        if functions.is_empty() { String::new() } else { format!(", most in {}", functions.join(" and ")) };
    let compared = compared(place, others);
    let (call, called) = (&counts.call, called(place));
    match counts.count {
        0 => format!("{begin} come from {call}: {}{kernel}{compared}.", in_all(counts)),
        calls => {
            let (per_call, unit) = (per_call(counts), unit(call));
            let plural = if calls == 1 { "" } else { "s" };
            let calls = format!("{} {unit}{plural}", number(calls));
            format!("{begin} come from {call}{called}: {per_call} per {unit} in {calls}{kernel}{compared}.")
        }
    }
}

/// Returns the word for one call, or one of another cause.
fn unit(call: &str) -> &'static str {
    match call {
        FAULTS => "fault",
        INTERRUPTS => "interrupt",
        _ => "call",
    }
}

/// Returns the place from which the program makes a call.
fn called(place: &Place) -> String {
    if place.place == NOWHERE {
        return String::new();
    }
    let via = if place.via.is_empty() { String::new() } else { format!(" (via {})", place.via.join(", ")) };
    format!(", called from {}{via}", place.place)
}

fn per_call(counts: &Counts) -> String {
    let [interrupts, lines] = [counts.interrupts, counts.lines].map(|count| counts.per_call(count));
    format!("{} interrupts and {} lines", decimal(interrupts), decimal(lines))
}

fn in_all(counts: &Counts) -> String {
    format!("{} interrupts and {} lines", number(counts.interrupts), number(counts.lines))
}

fn compared(place: &Place, others: &[&Measured]) -> String {
    let other = |one: &&Measured| {
        let there = one.at(place);
        // Unwinding may fail on one system and not on the other.
        let there = if there.count == 0 { one.call(&place.counts.call) } else { there };
        match there.count {
            0 if place.counts.count == 0 => format!("; on {} {}", one.system, in_all(&there)),
            0 => format!("; {} has none of them", one.system),
            _ => format!("; on {} {}", one.system, per_call(&there)),
        }
    };
    others.iter().map(other).collect()
}

/// Returns the verdict in a sentence or two.
pub fn verdict(measured: &[Measured]) -> String {
    let Some((one, others)) = split(measured) else { return "nothing was measured.".to_owned() };
    if one.kernel_part < MATTERS {
        return not_the_kernel(one);
    }
    let Some(worst) = repeated(one) else { return only_once(one) };
    let best = others.iter().map(|other| other.kernel_part).fold(f64::INFINITY, f64::min);
    let begin = format!(
        "the kernel makes it slow: by the cost model {} of all cycles on {} go to lines and interrupts in the kernel, \
         {}.",
        percent(one.kernel_part),
        one.system,
        blamed(one, worst)
    );
    let end = match others.iter().min_by(|a, b| a.kernel_part.total_cmp(&b.kernel_part)) {
        None => remedy(one, worst).to_owned(),
        Some(other) if best < one.kernel_part / 3.0 => {
            format!("On {} it is {}. {}", other.system, percent(best), remedy(one, worst))
        }
        Some(other) => format!(
            "On {} it is {}, so the reason is not the address space alone.",
            other.system,
            percent(best)
        ),
    };
    format!("{begin} {}", end.trim_end()).trim_end().to_owned()
}

fn not_the_kernel(one: &Measured) -> String {
    let begin = format!(
        "the kernel is not the reason: by the cost model its lines and interrupts take {} of all cycles on {}.",
        percent(one.kernel_part),
        one.system
    );
    match one.own.first() {
        Some(own) if one.user_part >= MATTERS => format!(
            "{begin} The program's own threads take {} by writing the same cache lines, most in {}.",
            percent(one.user_part),
            own.place
        ),
        _ => format!(
            "{begin} Threads that sleep, wait for a device or have too little to do are not counted here."
        ),
    }
}

/// Returns the place of the program that moves most lines again and again.
fn repeated(one: &Measured) -> Option<&Place> {
    let is_repeated = |place: &&Place| place.counts.count >= REPEATED && !place.frames.is_empty();
    one.places.iter().find(is_repeated).filter(|place| matters(one, place))
}

fn only_once(one: &Measured) -> String {
    format!(
        "not known: by the cost model {} of all cycles on {} go to lines and interrupts in the kernel, but no place of the \
         program causes them again and again. Its start and its end are in these counts: let it do more.",
        percent(one.kernel_part),
        one.system
    )
}

/// Returns the call at a place, and its part.
fn blamed(one: &Measured, place: &Place) -> String {
    let share = percent(part(place.counts.lines, one.kernel_lines));
    format!("{share} of the lines in {}{}", place.counts.call, called(place))
}

/// Returns advice for stock Linux.
fn remedy(one: &Measured, worst: &Place) -> &'static str {
    match worst.counts.call.as_str() {
        _ if !one.is_linux => "",
        call if MEMORY.contains(&call) => {
            "On stock Linux it helps to map less often (larger pieces, kept for reuse); `./radixvm native` does that for \
             small mappings."
        }
        "futex" => "Threads wait there for each other's locks: that is the program's own contention.",
        _ => "",
    }
}

/// Formats a part as percent.
pub fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    if percent > 0.0 && percent < 0.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats a count per call.
fn decimal(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value < 0.01 => "less than 0.01".to_owned(),
        _ if value < 1.0 => format!("{value:.2}"),
        _ if value < 10.0 => format!("{value:.1}"),
        _ => number(value.round() as u64),
    }
}

pub(super) fn number(value: u64) -> String {
    count(value as i64)
}

/// Breaks a text into lines of at most 118 characters.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let is_long = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.chars().count() + 1 + word.chars().count() > 118);
        match lines.last_mut() {
            Some(line) if !is_long => {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            _ => lines.push(format!("{indent}{word}")),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Own;
    use super::super::modules::Frame;
    use super::*;

    fn place(call: &str, lines: u64, interrupts: u64) -> Place {
        let frame = Frame {
            function: Some("grow".to_owned()),
            source: Some(("/src/arena.c".to_owned(), 212)),
            file: None,
            address: "0x1".to_owned(),
            is_program: true,
        };
        Place {
            counts: Counts {
                call: call.to_owned(),
                count: 100,
                instructions: 5000,
                lines,
                invalidations: 0,
                interrupts,
            },
            place: frame.describe(),
            via: vec!["malloc".to_owned(), "sysmalloc".to_owned()],
            frames: vec![frame],
            kernel: vec![("rwsem_down_write_slowpath".to_owned(), lines)],
        }
    }

    /// Returns the counts of a program that unmaps a lot, on stock Linux and on RadixVM.
    pub fn example() -> Vec<Measured> {
        let linux = Measured {
            system: "stock Linux 6.1".to_owned(),
            is_linux: true,
            kernel: "6.1.0".to_owned(),
            cpus: 4,
            marked: false,
            escapes: 0,
            user_instructions: 50_000,
            kernel_instructions: 1_000_000,
            user_lines: 10,
            kernel_lines: 20_000,
            interrupts: 250,
            kernel_part: 0.78,
            user_part: 0.0,
            calls: vec![place("munmap", 14_100, 250).counts, place("mmap", 5900, 0).counts],
            places: vec![place("munmap", 14_100, 250), place("mmap", 5900, 0), place("read", 10, 0)],
            own: vec![Own { place: "grow at arena.c:9".to_owned(), lines: 10 }],
        };
        let ours = Measured {
            system: "RadixVM adaptive".to_owned(),
            is_linux: false,
            kernel_lines: 0,
            interrupts: 0,
            kernel_part: 0.0,
            calls: vec![place("munmap", 0, 0).counts],
            places: vec![place("munmap", 0, 0)],
            ..linux.clone()
        };
        vec![ours, linux]
    }

    #[test]
    fn a_place_is_told_with_its_counts_on_both_systems() {
        let sentences = sentences(&example());
        assert_eq!(
            sentences[0],
            "On stock Linux 6.1 at 4 CPUs 70 % of the kernel's cache-line moves come from munmap, called from grow at \
             arena.c:212 (via malloc, sysmalloc): 2.5 interrupts and 141 lines per call in 100 calls, most in \
             rwsem_down_write_slowpath; on RadixVM adaptive 0 interrupts and 0 lines."
        );
        assert!(
            sentences[1].starts_with("30 % come from mmap")
                && sentences[1].contains("RadixVM adaptive has none of them")
        );
        assert_eq!(sentences.len(), 2, "the third place is too small");
    }

    #[test]
    fn the_verdict_names_the_kernel_the_call_and_the_remedy() {
        let text = verdict(&example());
        assert!(text.starts_with("the kernel makes it slow: by the cost model 78 %"), "{text}");
        assert!(
            text.contains("70 % of the lines in munmap, called from grow at arena.c:212")
                && text.contains("On RadixVM adaptive it is 0 %.")
        );
        assert!(text.ends_with("small mappings."));
        let alone = verdict(&example()[1..]);
        assert!(alone.contains("makes it slow") && !alone.contains("RadixVM adaptive"));
    }

    #[test]
    fn a_program_that_is_slow_by_itself_is_told_so() {
        let mut measured = example();
        measured[1].kernel_part = 0.01;
        measured[1].user_part = 0.4;
        let text = verdict(&measured);
        assert!(text.contains("not the reason") && text.ends_with("most in grow at arena.c:9."), "{text}");
        measured[1].user_part = 0.0;
        assert!(verdict(&measured).contains("Threads that sleep"));
    }

    #[test]
    fn a_start_and_an_end_are_no_reason() {
        let mut measured = example();
        measured[1].places.iter_mut().for_each(|place| place.counts.count = 1);
        assert!(
            verdict(&measured).starts_with("not known") && verdict(&measured).ends_with("let it do more.")
        );
        assert!(sentences(&measured)[0].contains(" per call in 1 call, "), "{:?}", sentences(&measured));
        measured[1].places[0].counts.call = FAULTS.to_owned();
        measured[1].places[0].counts.count = 2;
        assert!(sentences(&measured)[0].contains(" per fault in 2 faults, "));
    }

    #[test]
    fn a_call_from_many_places_is_told_as_a_whole() {
        let mut measured = example();
        let one = &mut measured[1];
        one.places = (0..40).map(|_| place(FAULTS, 500, 0)).collect();
        one.calls = vec![place(FAULTS, 20_000, 0).counts];
        assert_eq!(
            sentences(&measured),
            [
                "On stock Linux 6.1 at 4 CPUs 100 % of the kernel's cache-line moves come from page faults at 40 places together."
            ]
        );
    }

    #[test]
    fn a_reason_that_both_kernels_have_is_not_the_address_space() {
        let mut measured = example();
        measured[0].kernel_part = 0.6;
        assert!(
            verdict(&measured)
                .ends_with("On RadixVM adaptive it is 60 %, so the reason is not the address space alone.")
        );
        assert_eq!(verdict(&[]), "nothing was measured.");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.004, 0.25, 2.54, 141.2, 1234.0].map(decimal),
            ["0", "less than 0.01", "0.25", "2.5", "141", "1,234"]
        );
        assert_eq!([0.0, 0.004, 0.41].map(percent), ["0 %", "0.4 %", "41 %"]);
    }

    #[test]
    fn lines_are_not_too_long() {
        let text = wrapped(&"word ".repeat(60), "  ");
        assert!(
            text.lines().all(|line| line.chars().count() <= 120)
                && text.lines().nth(1).unwrap().starts_with("  word")
        );
    }

    #[test]
    fn the_whole_text_has_the_table_and_the_verdict() {
        let text = text(&example());
        assert!(text.starts_with("system") && text.contains("\nVerdict: the kernel makes it slow"), "{text}");
        let mut busy = example();
        busy[0].escapes = 51;
        assert!(super::text(&busy).contains("RadixVM adaptive: 51 times a CPU"));
    }
}
