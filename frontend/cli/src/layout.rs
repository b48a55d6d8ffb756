//! From the flags and settings of a layout to one that is checked.
//!
//! Every refusal says the numbers that make it so, where each was set, and a layout near it that is
//! legal: one that has been through the same checks.

use crate::settings::{Merged, Source};
use vlmc_frontend::diag::{Code, Diag, nearest};
use vlmc_passes::partition::letters;
use vlmc_passes::partition::placement::{
    Grid, LayoutError, LettersError, Model, Placement, Split, place,
};
use vlmc_passes::partition::suggest;
use vlmc_passes::schedule::{self, Kind, ScheduleError};

/// Microbatches of a step at most: the schedule lists them one by one.
pub const MOST_MICROBATCHES: u32 = 1 << 16;

/// A layout that has been checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Pipeline ranks and chunks of each.
    pub grid: Grid,
    /// Context-parallel ranks.
    pub cp: u32,
    /// Data-parallel ranks.
    pub dp: u32,
    /// Expert-parallel ranks, among the `cp * dp` that share a stage.
    pub ep: u32,
    /// How layers are divided.
    pub split: Split,
    /// Which part is where.
    pub placement: Placement,
    /// Microbatches of a step.
    pub microbatches: u32,
    /// Microbatches of a group.
    pub group: u32,
    /// The family of the schedule.
    pub kind: Kind,
    /// What was chosen where nothing was said, in words.
    pub notes: Vec<String>,
}

impl Layout {
    /// All ranks.
    pub fn world_size(&self) -> u64 {
        u64::from(self.grid.pp) * u64::from(self.cp) * u64::from(self.dp)
    }
}

/// From a layout with equal shares to shares by cost, and why they were taken; `None` when there are
/// none.
pub type Auto<'a> = dyn Fn(&Layout) -> Option<(Split, String)> + 'a;

/// What the checks must know beside the flags.
pub struct Facts<'a> {
    /// The parts of the model.
    pub model: &'a Model,
    /// Rows that context parallelism divides: those of a sequence, or of a pack.
    pub rows: u64,
    /// Numbers of experts that layers have.
    pub experts: &'a [u64],
    /// What `--layout auto` does.
    pub auto: &'a Auto<'a>,
}

/// Checks the layout that the settings ask for.
///
/// # Errors
/// All that is wrong with it.
pub fn choose(merged: &Merged, facts: &Facts<'_>) -> Result<Layout, Vec<Diag>> {
    let mut chooser = Chooser { merged, facts, bad: vec![], notes: vec![] };
    let layout = chooser.run();
    match layout {
        Some(layout) if chooser.bad.is_empty() => Ok(layout),
        _ => Err(chooser.bad),
    }
}

struct Chooser<'a> {
    merged: &'a Merged,
    facts: &'a Facts<'a>,
    bad: Vec<Diag>,
    notes: Vec<String>,
}

impl Chooser<'_> {
    fn run(&mut self) -> Option<Layout> {
        self.tensor_parallel();
        let split = self.split();
        let mut number = |key| self.number(key);
        let (pp, vpp) = (number("pp"), number("vpp"));
        let cp = number("cp").unwrap_or(1);
        let (dp, ep) = (number("dp"), number("ep").unwrap_or(1));
        let (microbatches, group) = (number("microbatches"), number("group"));
        let kind = self.kind();
        let dp = self.ranks(cp, dp, ep);
        // The rest builds on these.
        let (split, kind) = (split?, kind?);
        if !self.bad.is_empty() {
            return None;
        }
        let wanted = Wanted { pp, vpp, microbatches, group, kind };
        let grid = self.grid(&wanted, &split)?;
        let is_auto = matches!(split, Asked::Auto);
        let split = match split {
            Asked::Split(split) => split,
            Asked::Auto => suggest::balanced(self.facts.model, grid),
        };
        let placement = match place(self.facts.model, grid, &split) {
            Ok(placement) => placement,
            Err(e) => {
                self.bad.push(self.no_place(&wanted, &e, grid, &split));
                return None;
            }
        };
        let (kind, microbatches, group) = wanted.schedule(grid);
        if let Err(e) = schedule::check(kind, grid, microbatches, group) {
            self.bad.push(self.no_schedule(&e, kind, grid, microbatches, group));
            return None;
        }
        let notes = std::mem::take(&mut self.notes);
        let mut layout =
            Layout { grid, cp, dp, ep, split, placement, microbatches, group, kind, notes };
        if is_auto
            && let Some((split, why)) = (self.facts.auto)(&layout)
            && let Ok(placement) = place(self.facts.model, grid, &split)
        {
            layout.notes.push(why);
            (layout.split, layout.placement) = (split, placement);
        }
        Some(layout)
    }

    /// A setting of the layout as a number; what is wrong with it is told.
    fn number(&mut self, key: &str) -> Option<u32> {
        let (value, source) = self.merged.values.get(&format!("layout.{key}"))?;
        let most = if key == "microbatches" || key == "group" {
            MOST_MICROBATCHES
        } else {
            i32::MAX.unsigned_abs()
        };
        match value.parse::<u32>() {
            Ok(n) if (1..=most).contains(&n) => Some(n),
            _ => {
                let message = format!("`{key}` is {value}, it must be a number from 1 to {most}");
                let diag = primary(Diag::error(Code::BadSetting, message), key, value, source, "");
                self.bad.push(diag.help("leave it out to have the default"));
                None
            }
        }
    }

    fn truth(&mut self, key: &str) -> bool {
        let Some((value, source)) = self.merged.values.get(&format!("layout.{key}")) else {
            return false;
        };
        if !matches!(value.as_str(), "true" | "false") {
            let message = format!("`{key}` is {value}, it must be true or false");
            let diag = primary(Diag::error(Code::BadSetting, message), key, value, source, "");
            self.bad.push(diag.help(format!("write `{key} = true`, or leave it out")));
        }
        value == "true"
    }

    fn tensor_parallel(&mut self) {
        if let Some(n @ 2..) = self.number("tp") {
            let message =
                format!("`--tp {n}` divides layers over ranks, and this compiler keeps them whole");
            let diag = self.at(Diag::error(Code::TensorParallel, message), "tp", "set here");
            self.bad.push(diag.help("compile with `--tp 1`"));
        }
    }

    /// How layers are to be divided: one way only.
    fn split(&mut self) -> Option<Asked> {
        let (first, last) = (self.count("first-layers"), self.count("last-layers"));
        let (embedding, loss) = (self.truth("account-embedding"), self.truth("account-loss"));
        let text = self.merged.get("layout.layout").unwrap_or("even").to_string();
        let asked = |name: &'static str, is: bool| is.then_some(name);
        let ways: [Vec<&str>; 3] = [
            asked("layout", text != "even").into_iter().collect(),
            [asked("first-layers", first.is_some()), asked("last-layers", last.is_some())]
                .into_iter()
                .flatten()
                .collect(),
            [asked("account-embedding", embedding), asked("account-loss", loss)]
                .into_iter()
                .flatten()
                .collect(),
        ];
        let used: Vec<&str> = ways.iter().filter_map(|w| w.first().copied()).collect();
        if let [one, other, ..] = used[..] {
            let message = format!("`--{one}` and `--{other}` both say where layers go");
            let mut diag = Diag::error(Code::MixedSplits, message);
            diag = self.at(diag, one, "one way");
            diag = self.fact(diag, other, "another");
            self.bad.push(diag.help(format!("leave out `--{other}`, or `--{one}`")));
            return None;
        }
        Some(match text.as_str() {
            "auto" => Asked::Auto,
            "even" if first.is_some() || last.is_some() => {
                Asked::Split(Split::Uneven { first, last })
            }
            "even" => Asked::Split(Split::Even { embedding, loss }),
            _ => Asked::Split(Split::Letters(text)),
        })
    }

    /// A number of layers; 0 is for placement to refuse.
    fn count(&mut self, key: &str) -> Option<u32> {
        match self.merged.values.get(&format!("layout.{key}")) {
            Some((value, _)) if value == "0" => Some(0),
            _ => self.number(key),
        }
    }

    /// The schedule that is asked for; `Some(None)` for none.
    fn kind(&mut self) -> Option<Option<Kind>> {
        let Some(name) = self.merged.get("layout.schedule") else { return Some(None) };
        if let Some(kind) = Kind::from_name(name) {
            return Some(Some(kind));
        }
        let names = Kind::ALL.map(Kind::name);
        let diag = Diag::error(Code::BadSetting, format!("`{name}` is no schedule"));
        let diag = self.at(diag, "schedule", "set here");
        let near = nearest(name, names.iter().copied()).map(|n| format!("did you mean `{n}`?"));
        let help = near.unwrap_or_else(|| format!("write one of {}", names.join(", ")));
        self.bad.push(diag.help(help));
        None
    }

    /// Checks rows and experts against their ranks, and gives the data-parallel ranks.
    fn ranks(&mut self, cp: u32, dp: Option<u32>, ep: u32) -> u32 {
        let pieces = 2 * u64::from(cp);
        if cp > 1 && !self.facts.rows.is_multiple_of(pieces) {
            let rows = self.facts.rows;
            let message = format!("{rows} rows do not divide into 2 x cp {cp} = {pieces} pieces");
            let diag = Diag::error(Code::ContextParallel, message);
            let diag = self.at(diag, "cp", "each rank takes two pieces of a sequence");
            let up = rows.next_multiple_of(pieces);
            let down = rows - rows % pieces;
            let near = if down > 0 { format!("{down} or {up}") } else { up.to_string() };
            let mut help = format!("sequences of {near} rows divide");
            if let Some(fewer) =
                (1..cp).rev().find(|c| *c == 1 || rows.is_multiple_of(2 * u64::from(*c)))
            {
                help += &format!("; `--cp {fewer}` divides {rows}");
            }
            self.bad.push(diag.help(help));
        }
        for experts in self.facts.experts {
            if !experts.is_multiple_of(u64::from(ep)) {
                let message = format!("{experts} experts do not divide over ep {ep} ranks");
                let diag = Diag::error(Code::ExpertParallel, message);
                let diag = self.at(diag, "ep", "each rank holds equally many experts");
                let fewer = (1..ep).rev().find(|e| experts.is_multiple_of(u64::from(*e)));
                self.bad
                    .push(diag.help(format!("`--ep {}` divides {experts}", fewer.unwrap_or(1))));
            }
        }
        if ep > 1 && self.facts.experts.is_empty() {
            let diag = Diag::error(
                Code::ExpertParallel,
                format!("ep is {ep}, and the model has no experts"),
            );
            let diag = self.at(diag, "ep", "set here");
            self.bad.push(diag.help("`--ep 1` is for dense models"));
        }
        let least = u64::from(ep) / gcd(u64::from(ep), u64::from(cp));
        let least = u32::try_from(least).unwrap_or(ep);
        let Some(dp) = dp else {
            if least > 1 {
                self.notes.push(format!("dp {least}: the fewest with which cp x dp holds ep {ep}"));
            }
            return least;
        };
        if !dp.is_multiple_of(least) {
            let message = format!(
                "ep {ep} does not divide cp {cp} x dp {dp} = {}",
                u64::from(cp) * u64::from(dp)
            );
            let diag = Diag::error(Code::ExpertParallel, message);
            let diag = self.at(diag, "ep", "experts are spread over the ranks of a stage");
            let diag = self.fact(diag, "dp", "set here");
            let up = dp.checked_next_multiple_of(least).unwrap_or(least);
            self.bad.push(diag.help(format!("`--dp {up}` with `--cp {cp}` holds `--ep {ep}`")));
        }
        dp
    }

    /// The grid: what is named, what a written layout has, or the smallest that is legal.
    fn grid(&mut self, wanted: &Wanted, split: &Asked) -> Option<Grid> {
        let stages = match split {
            Asked::Split(Split::Letters(text)) => match letters::stages(text) {
                Ok(n) => u32::try_from(n).ok(),
                Err(e) => {
                    let grid = wanted.or_one();
                    self.bad.push(self.no_place(wanted, &e.into(), grid, &split.plain()));
                    return None;
                }
            },
            _ => None,
        };
        Some(match (wanted.pp, wanted.vpp, stages) {
            (Some(pp), Some(vpp), _) => Grid { pp, vpp },
            (Some(pp), None, n) => Grid { pp, vpp: n.map_or(1, |n| (n / pp).max(1)) },
            (None, vpp, Some(n)) => {
                let vpp = vpp.unwrap_or(1);
                Grid { pp: (n / vpp).max(1), vpp }
            }
            (None, None | Some(1), None) => Grid { pp: 1, vpp: 1 },
            (None, Some(vpp), None) => {
                let most = u32::try_from(self.facts.model.depth()).unwrap_or(u32::MAX);
                let legal = |pp: &u32| self.complete(wanted, Grid { pp: *pp, vpp }, &split.plain());
                match (2..=most.saturating_add(2).max(2)).find(|pp| legal(pp).is_some()) {
                    Some(pp) => {
                        self.notes
                            .push(format!("pp {pp}: the fewest ranks that vpp {vpp} can have"));
                        Grid { pp, vpp }
                    }
                    // Told by placement, with what is wrong with the least of them.
                    None => Grid { pp: 2, vpp },
                }
            }
        })
    }

    /// The flags of a layout that passes every check, with a schedule that does.
    fn complete(&self, wanted: &Wanted, grid: Grid, split: &Split) -> Option<String> {
        place(self.facts.model, grid, split).ok()?;
        let (kind, m, group) = wanted.schedule(grid);
        let near = schedule::alternatives(kind, grid, m, group).into_iter().next()?;
        let mut flags = written(grid, split);
        if near != (kind, m, group) {
            flags += &of_schedule(near, (kind, m, group));
        }
        Some(flags)
    }

    fn no_place(&self, wanted: &Wanted, e: &LayoutError, grid: Grid, split: &Split) -> Diag {
        let code = match e {
            LayoutError::NoChunks { .. } | LayoutError::TooManyChunks { .. } => {
                Code::LayoutTooLarge
            }
            LayoutError::OneRank { .. } => Code::OneRank,
            LayoutError::NotDivisible { .. } => Code::LayersDoNotFit,
            LayoutError::NoLayers { .. }
            | LayoutError::TooManyLayers { .. }
            | LayoutError::Middle { .. }
            | LayoutError::Chunks { .. } => Code::UnevenSplit,
            LayoutError::Letters(_) => Code::BadLayout,
        };
        let mut diag = Diag::error(code, e.to_string());
        diag = match (e, split) {
            (LayoutError::Letters(e), Split::Letters(text)) => self.at_letters(diag, e, text),
            (LayoutError::NoLayers { which }, _) => {
                self.at(diag, &format!("{which}-layers"), "set here")
            }
            (_, Split::Uneven { first, last }) => {
                let mut diag = diag;
                for (key, of) in [("first-layers", first), ("last-layers", last)] {
                    if let Some(n) = of {
                        diag = self.at(diag, key, &format!("{n} layers of its rank"));
                    }
                }
                self.fact(diag, "pp", "ranks")
            }
            _ => {
                let chunks = format!("{} chunks", grid.chunks());
                let diag = self.at(diag, if grid.vpp > 1 { "vpp" } else { "pp" }, &chunks);
                if grid.vpp > 1 { self.fact(diag, "pp", "ranks") } else { diag }
            }
        };
        if let LayoutError::NotDivisible { layers, counted: counted @ 1.., .. } = e {
            diag =
                diag.note(format!("{layers} decoder layers, and {counted} for what counts as one"));
        }
        let near = suggest::alternatives(self.facts.model, grid, split);
        let mut helps: Vec<String> =
            near.iter().filter_map(|(g, s)| self.complete(wanted, *g, s)).collect();
        helps.truncate(2);
        if helps.is_empty() {
            helps.extend(self.complete(wanted, Grid { pp: 1, vpp: 1 }, &EVEN));
        }
        for flags in helps {
            diag = diag.help(format!("legal is `{flags}`"));
        }
        diag
    }

    fn at_letters(&self, diag: Diag, e: &LettersError, text: &str) -> Diag {
        let place = match e {
            LettersError::Character { at, .. }
            | LettersError::Repeat { at }
            | LettersError::Group { at } => text.char_indices().nth(*at),
            _ => None,
        };
        let Some((start, c)) = place else { return self.at(diag, "layout", "") };
        let line = format!("--layout \"{text}\"");
        let start = start + "--layout \"".len();
        diag.flag(line, start..start + c.len_utf8(), "here")
    }

    fn no_schedule(&self, e: &ScheduleError, kind: Kind, grid: Grid, m: u32, group: u32) -> Diag {
        let (code, key) = match e {
            ScheduleError::Nothing | ScheduleError::TooManySlots { .. } => {
                (Code::LayoutTooLarge, "microbatches")
            }
            ScheduleError::OneChunk { .. }
            | ScheduleError::NeedsChunks { .. }
            | ScheduleError::NeedsRanks { .. } => (Code::ScheduleKind, "schedule"),
            ScheduleError::GroupBelowRanks { .. } => (Code::BadMicrobatches, "group"),
            ScheduleError::GroupAboveMicrobatches { .. } | ScheduleError::Remainder { .. } => {
                (Code::BadMicrobatches, "microbatches")
            }
        };
        let mut diag = self.at(Diag::error(code, e.to_string()), key, "set here");
        for other in ["pp", "vpp", "group", "microbatches"].iter().filter(|k| **k != key) {
            if self.merged.values.contains_key(&format!("layout.{other}")) {
                diag = self.fact(diag, other, "");
            }
        }
        let near = schedule::alternatives(kind, grid, m, group);
        for found in near.iter().take(2) {
            let flags = of_schedule(*found, (kind, m, group));
            diag = diag.help(format!("legal is `{}`", flags.trim()));
        }
        if near.is_empty() {
            diag = diag.help("use fewer chunks or microbatches");
        }
        diag
    }

    /// Adds the place where a setting is the mistake.
    fn at(&self, diag: Diag, key: &str, label: &str) -> Diag {
        match self.merged.values.get(&format!("layout.{key}")) {
            Some((value, source)) => primary(diag, key, value, source, label),
            None => {
                let line = format!("--{key}");
                let range = 0..line.len();
                diag.flag(line, range, if label.is_empty() { "the default" } else { label })
            }
        }
    }

    /// Adds the place of a setting that explains a mistake.
    fn fact(&self, diag: Diag, key: &str, label: &str) -> Diag {
        let Some((value, source)) = self.merged.values.get(&format!("layout.{key}")) else {
            return diag;
        };
        let (line, range) = shown(key, value, source);
        diag.secondary_flag(line, range, label)
    }
}

const EVEN: Split = Split::Even { embedding: false, loss: false };

/// How layers are to be divided, before `auto` has been worked out.
enum Asked {
    Auto,
    Split(Split),
}

impl Asked {
    /// A split that is as legal as this one.
    fn plain(&self) -> Split {
        match self {
            Asked::Auto => EVEN,
            Asked::Split(split) => split.clone(),
        }
    }
}

/// What is named of grid and schedule.
struct Wanted {
    pp: Option<u32>,
    vpp: Option<u32>,
    microbatches: Option<u32>,
    group: Option<u32>,
    kind: Option<Kind>,
}

impl Wanted {
    fn or_one(&self) -> Grid {
        Grid { pp: self.pp.unwrap_or(1), vpp: self.vpp.unwrap_or(1) }
    }

    /// Kind, microbatches and group on a grid, with defaults for what is not named.
    fn schedule(&self, grid: Grid) -> (Kind, u32, u32) {
        let kind = self.kind.unwrap_or(Kind::default_for(grid));
        let usual = if grid.pp == 1 { 1 } else { grid.pp.saturating_mul(2).min(MOST_MICROBATCHES) };
        (kind, self.microbatches.unwrap_or(usual), self.group.unwrap_or(grid.pp))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

fn primary(diag: Diag, key: &str, value: &str, source: &Source, label: &str) -> Diag {
    let (line, range) = shown(key, value, source);
    diag.flag(line, range, if label.is_empty() { "set here" } else { label })
}

/// A setting as its source has it, and where the value stands in that.
fn shown(key: &str, value: &str, source: &Source) -> (String, std::ops::Range<usize>) {
    let (head, tail) = match source {
        Source::Flag(flag) if value == "true" => (String::new(), flag.clone()),
        Source::Flag(flag) => (format!("{flag} "), value.to_string()),
        Source::File => (format!("{}: {key} = ", crate::settings::FILE), value.to_string()),
        Source::Env(name) => (format!("{name}="), value.to_string()),
        Source::Default => (format!("--{key} "), value.to_string()),
    };
    let range = head.len()..head.len() + tail.len();
    (head + &tail, range)
}

/// A grid and a split as flags.
pub fn written(grid: Grid, split: &Split) -> String {
    let mut out = format!("--pp {} --vpp {}", grid.pp, grid.vpp);
    match split {
        Split::Even { embedding, loss } => {
            out += if *embedding { " --account-embedding" } else { "" };
            out += if *loss { " --account-loss" } else { "" };
        }
        Split::Uneven { first, last } => {
            for (key, n) in [("first", first), ("last", last)] {
                if let Some(n) = n {
                    out += &format!(" --{key}-layers {n}");
                }
            }
        }
        Split::Letters(text) => out += &format!(" --layout \"{text}\""),
    }
    out
}

/// What of a schedule differs from another one, as flags.
fn of_schedule(found: (Kind, u32, u32), asked: (Kind, u32, u32)) -> String {
    let mut out = String::new();
    if found.0 != asked.0 {
        out += &format!(" --schedule {}", found.0);
    }
    if found.1 != asked.1 {
        out += &format!(" --microbatches {}", found.1);
    }
    if found.2 != asked.2 {
        out += &format!(" --group {}", found.2);
    }
    out
}
