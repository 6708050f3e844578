use super::*;
use crate::args::Options;
use crate::cpu::Privilege;
use crate::decode::Marker;
use crate::meter::Touch;

fn metered() -> Meter {
    let options = Options {
        out: "unused".into(),
        memory: 1 << 20,
        cpus: 3,
        slack: 200,
        rounds: 0,
        quantum_ns: 1,
        events: Vec::new(),
        sites: None,
    };
    let meter = Meter::new(options).unwrap();
    meter.run();
    meter.marker(0, Marker::Begin(1), Privilege::User, 0);
    for turn in 0..8 {
        let (cpu, place) = (turn % 2, 8 * (turn as u64 % 2));
        let touch = Touch {
            physical: 0x1000 + place,
            address: 0x7000 + place,
            bytes: 0xff << place,
            store: true,
            pc: 0x40,
        };
        meter.touch(cpu, &touch);
        meter.touch(cpu, &Touch { physical: 0x2000, address: 0xffff_8000_0000_2000, bytes: 1, ..touch });
        meter.marker(cpu, Marker::Iter, Privilege::User, 0);
    }
    meter.marker(0, Marker::End, Privilege::User, 0);
    meter.stop();
    meter
}

/// Returns whether brackets and quotes match and nothing is outside. That is enough for text without escapes.
fn is_balanced(text: &str) -> bool {
    let mut open = Vec::new();
    let mut quoted = false;
    for c in text.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => open.push(c),
            '}' if !quoted && open.pop() != Some('{') => return false,
            ']' if !quoted && open.pop() != Some('[') => return false,
            _ => {}
        }
    }
    open.is_empty() && !quoted && !text.contains(",,") && !text.contains(",]") && !text.contains("[,")
}

#[test]
fn the_first_begin_of_a_program_is_told() {
    let meter = metered();
    assert!(json(&meter).contains("\"begin\":null"));
    [0xffff_8000_0000_0000, 0x5000, 0x6000].into_iter().for_each(|pc| meter.begins_at(pc));
    assert!(json(&meter).contains("\"begin\":\"0x5000\""));
}

#[test]
fn it_is_well_formed() {
    let text = json(&metered());
    assert!(is_balanced(&text), "{text}");
    let empty = json(&Meter::new(metered().options).unwrap());
    assert!(is_balanced(&empty) && empty.contains("\"rounds\":[]"), "{empty}");
}

#[test]
fn rows_are_as_long_as_the_columns_say() {
    let meter = metered();
    let columns = columns().split(',').count();
    let rounds = rounds(&meter);
    let rows: Vec<&str> = rounds.split('\n').filter(|row| !row.is_empty()).collect();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|row| row.trim_end_matches(',').split(',').count() == columns), "{rounds}");
}

#[test]
fn false_sharing_is_told_from_true() {
    let lines = report::hottest(&metered().cpus);
    let told: Vec<_> =
        lines.iter().map(|line| (line.address, line.is_false_sharing(), line.is_user())).collect();
    assert_eq!(told, [(0x1000, true, true), (0x2000, false, false)]);
    assert_eq!((lines[0].transfers, lines[0].cpus().collect::<Vec<_>>()), (7, vec![0, 1]));
}
