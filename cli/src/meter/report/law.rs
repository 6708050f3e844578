//! The page's description of the cost model: constants with sources, extrapolation, and what is not counted.

use super::html::table;
use crate::meter::model::{self, Latency};

/// Returns all of it.
pub fn model_text() -> String {
    let latency = |latency: &Latency| {
        let at = |cpus| format!("{:.0}", latency.cycles(cpus));
        vec![latency.kind.to_owned(), format!("{:.0}", latency.near), format!("{:.0}", latency.far), at(80.0)]
    };
    let latencies = [model::READ_MODIFIED, model::READ_CLEAN, model::WRITE, model::UPGRADE];
    format!(
        "<h2>The cost model</h2>\n{LAW}\n{}<p>An interrupt is waited for {:.0} cycles with up to 16 CPUs and {:.0} with 120, sending it takes \
         {:.0} to {:.0} cycles per target (Kumar and others, LATR, ASPLOS 2018), and its target {:.0} for the trap (Baumann and others, The \
         multikernel, SOSP 2009). {} instructions per cycle, {} cycles for an iteration of a string instruction, {} GHz, sockets of ten cores: RadixVM's machine (EuroSys 2013).</p>\n{EXTRAPOLATION}\n{UNSEEN}",
        table(
            &["cycles of a", "same socket", "other socket", "mean of 80 cores"],
            latencies.iter().map(latency)
        ),
        model::answer(16.0),
        model::answer(120.0),
        model::send(16.0),
        model::send(120.0),
        model::TRAP,
        model::IPC,
        model::ITERATION,
        model::FREQUENCY / 1e9,
    )
}

const LAW: &str = "<p>Rounds per second are the least of three: <b>N / cycles</b> of a round, if each CPU works on its own, <b>1 / (transfers of the \
hottest line · latency)</b>, because a line is in one place at a time, and <b>1 / waiting</b>, the time of a round during which other CPUs sleep, \
where they do. A round's cycles are its instructions, the iterations of string instructions by which pages are zeroed and copied, each kind of transfer times its latency, and its interrupts. Latencies: David, Guerraoui, \
Trigonakis, <i>Everything you always wanted to know about synchronization but were afraid to ask</i>, SOSP 2013, table 2 (Xeon). For another socket it is \
the mean over seven, three of them one hop away and four two hops.</p>";

const EXTRAPOLATION: &str = "<p><b>Between</b> numbers of CPUs that were counted, counts per round go in straight lines. <b>Beyond</b> the largest, \
the dashed curve continues the line through the last two (both of more than one CPU), except for counts that cost less than a hundredth of a round, and for falling counts. The shaded area reaches to the curve of counts that stay as they were \
last. Only the latencies change then. Queues in front of a line that is not yet saturated, caches that are full, and memory that is far are left out, \
so real machines are slower. The shape is the prediction.</p>";

const UNSEEN: &str = "<p><b>Not seen</b> by the emulator's plugin: instruction fetches, page walks and the accessed and dirty bits that they write, \
exception frames that the CPU pushes, evictions. Shared page tables cost more on real machines than this page says.</p>";
