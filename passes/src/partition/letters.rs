//! Layouts as letters.
//!
//! ```text
//! layout := stage ('|' stage)*     as many stages as chunks, in the order of the model
//! stage  := item*                  may be empty
//! item   := 'v' | 'E' | 't' | 'g' | 'a' | 'm' | 'L'
//! X*n    := X n times, X one letter or '|'
//! (Y)*n  := Y n times; Y may hold '|', but no parentheses
//! ```
//!
//! `,` is ignored. `E` is the embedding, `t` a decoder layer, `m` an MTP module, `L` head and loss:
//! these are Megatron-LM's letters. `v` says that the vision tower is here, and `g` and `a` are
//! decoder layers of which the kind is to start with that letter.

use super::placement::{Grid, Model};

/// Letters after all repeats at most.
const MOST: usize = 1 << 17;

/// What is wrong with a layout as text. Places count characters from 0.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LettersError {
    /// A character that is none of the grammar's.
    #[error("`{character}` is no part of a layout")]
    Character {
        /// The place.
        at: usize,
        /// The character.
        character: char,
    },
    /// A `*` without something before it or a number after it.
    #[error("`*` repeats one letter or a group, and a number follows it")]
    Repeat {
        /// The place of the `*`.
        at: usize,
    },
    /// A parenthesis without its partner, in another one, or a group that is not repeated.
    #[error("a group is written `(..)*n` and holds no other group")]
    Group {
        /// The place of the parenthesis.
        at: usize,
    },
    /// The repeats make too much of it.
    #[error("the layout is longer than {MOST} letters")]
    TooLong,
    /// Not as many stages as chunks.
    #[error("the layout has {stages} stages, pp {pp} x vpp {vpp} are {}", u64::from(*pp) * u64::from(*vpp))]
    Stages {
        /// Stages written.
        stages: usize,
        /// Pipeline ranks.
        pp: u32,
        /// Chunks of a rank.
        vpp: u32,
    },
    /// A part is missing or there is too much of it.
    #[error("the layout has {found} `{letter}`, the model {wanted}")]
    Count {
        /// The part; `t` stands for `g` and `a` too.
        letter: char,
        /// How often it is written.
        found: u64,
        /// How often it must be.
        wanted: u64,
    },
    /// A part stands where it cannot be.
    #[error("`{letter}` {rule}")]
    Order {
        /// The part.
        letter: char,
        /// Where it must be.
        rule: &'static str,
    },
    /// A letter that names another kind of layer.
    #[error("`{letter}` is written for layer {layer}, which is `{kind}`")]
    Kind {
        /// The letter.
        letter: char,
        /// The layer.
        layer: usize,
        /// Its kind.
        kind: String,
    },
}

/// A layout that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cells {
    /// Decoder layers of each chunk.
    pub(super) layers: Vec<u64>,
    /// The chunk of the MTP modules.
    pub(super) mtp: Option<usize>,
}

/// The number of stages that a layout writes, `P * V`.
///
/// # Errors
/// When it is not of the grammar.
pub fn stages(text: &str) -> Result<usize, LettersError> {
    Ok(expand(text)?.iter().filter(|c| **c == '|').count() + 1)
}

/// Reads a layout for a model.
pub(super) fn read(text: &str, model: &Model, grid: Grid) -> Result<Cells, LettersError> {
    let all = expand(text)?;
    let stages: Vec<&[char]> = all.split(|c| *c == '|').collect();
    if stages.len() as u64 != grid.chunks() {
        return Err(LettersError::Stages { stages: stages.len(), pp: grid.pp, vpp: grid.vpp });
    }
    let items: Vec<char> = all.iter().copied().filter(|c| *c != '|').collect();
    counts(&items, model)?;
    order(&items, &stages)?;
    kinds(&items, model)?;
    let mut holders = stages.iter().enumerate().filter(|(_, s)| s.contains(&'m')).map(|(g, _)| g);
    let mtp = holders.next();
    if holders.next().is_some() {
        return Err(order_error('m', "must all be in one stage"));
    }
    if mtp.is_some_and(|g| grid.cell(g).1 + 1 != grid.vpp) {
        return Err(order_error('m', "must be in the last chunk of its rank"));
    }
    let layers = stages.iter().map(|s| s.iter().filter(|c| is_layer(**c)).count() as u64);
    Ok(Cells { layers: layers.collect(), mtp })
}

fn is_layer(c: char) -> bool {
    matches!(c, 't' | 'g' | 'a')
}

fn order_error(letter: char, rule: &'static str) -> LettersError {
    LettersError::Order { letter, rule }
}

fn counts(items: &[char], model: &Model) -> Result<(), LettersError> {
    let count = |is: &dyn Fn(char) -> bool| items.iter().filter(|c| is(**c)).count() as u64;
    // The tower needs no letter, since there is but one place for it.
    let towers = count(&|c| c == 'v');
    let towers_wanted = if towers == 0 { 0 } else { u64::from(model.vision) };
    for (letter, found, wanted) in [
        ('E', count(&|c| c == 'E'), 1),
        ('L', count(&|c| c == 'L'), 1),
        ('t', count(&is_layer), model.depth()),
        ('m', count(&|c| c == 'm'), u64::from(model.mtp)),
        ('v', towers, towers_wanted),
    ] {
        if found != wanted {
            return Err(LettersError::Count { letter, found, wanted });
        }
    }
    Ok(())
}

fn order(items: &[char], stages: &[&[char]]) -> Result<(), LettersError> {
    if stages.first().is_none_or(|s| !s.contains(&'E')) {
        return Err(order_error('E', "must be in the first stage"));
    }
    let tower = items.iter().position(|c| *c == 'v');
    if tower.is_some_and(|at| at > 1) {
        return Err(order_error('v', "must be beside `E` in the first stage"));
    }
    if items.iter().find(|c| **c != 'v') != Some(&'E') {
        return Err(order_error('E', "must come before every layer"));
    }
    if items.last() != Some(&'L') {
        return Err(order_error('L', "must come last"));
    }
    if stages.last().is_none_or(|s| !s.contains(&'L')) {
        return Err(order_error('L', "must be in the last stage"));
    }
    let first_mtp = items.iter().position(|c| *c == 'm').unwrap_or(items.len());
    if items[first_mtp..].iter().any(|c| is_layer(*c)) {
        return Err(order_error('m', "must come after every layer"));
    }
    Ok(())
}

fn kinds(items: &[char], model: &Model) -> Result<(), LettersError> {
    let layers = items.iter().filter(|c| is_layer(**c));
    for (layer, (letter, kind)) in layers.zip(&model.layers).enumerate() {
        if *letter != 't' && !kind.starts_with(*letter) {
            return Err(LettersError::Kind { letter: *letter, layer, kind: kind.clone() });
        }
    }
    Ok(())
}

/// The layout with repeats written out: letters and `|` only.
fn expand(text: &str) -> Result<Vec<char>, LettersError> {
    let chars: Vec<(usize, char)> = text.chars().enumerate().filter(|(_, c)| *c != ',').collect();
    let mut reader = Reader { chars: &chars, next: 0 };
    let mut out = vec![];
    while let Some((at, c)) = reader.take() {
        let piece = if c == '(' { reader.group(at)? } else { vec![letter(at, c)?] };
        let times = reader.times()?;
        if c == '(' && times.is_none() {
            return Err(LettersError::Group { at });
        }
        append(&mut out, &piece, times)?;
    }
    Ok(out)
}

fn letter(at: usize, c: char) -> Result<char, LettersError> {
    match c {
        'v' | 'E' | 't' | 'g' | 'a' | 'm' | 'L' | '|' => Ok(c),
        '*' => Err(LettersError::Repeat { at }),
        '(' | ')' => Err(LettersError::Group { at }),
        character => Err(LettersError::Character { at, character }),
    }
}

fn append(out: &mut Vec<char>, piece: &[char], times: Option<usize>) -> Result<(), LettersError> {
    let times = times.unwrap_or(1);
    let length = piece.len().saturating_mul(times).saturating_add(out.len());
    if length > MOST {
        return Err(LettersError::TooLong);
    }
    // A piece of nothing may be repeated very often.
    if !piece.is_empty() {
        (0..times).for_each(|_| out.extend_from_slice(piece));
    }
    Ok(())
}

struct Reader<'c> {
    chars: &'c [(usize, char)],
    next: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<(usize, char)> {
        self.chars.get(self.next).copied()
    }

    fn take(&mut self) -> Option<(usize, char)> {
        let taken = self.peek();
        self.next += usize::from(taken.is_some());
        taken
    }

    /// What is between a parenthesis at `open` and its partner.
    fn group(&mut self, open: usize) -> Result<Vec<char>, LettersError> {
        let mut out = vec![];
        loop {
            match self.take() {
                None => return Err(LettersError::Group { at: open }),
                Some((_, ')')) => return Ok(out),
                Some((at, c)) => {
                    let piece = [letter(at, c)?];
                    let times = self.times()?;
                    append(&mut out, &piece, times)?;
                }
            }
        }
    }

    /// `*n`, if it comes next.
    fn times(&mut self) -> Result<Option<usize>, LettersError> {
        let Some((at, '*')) = self.peek() else { return Ok(None) };
        self.next += 1;
        let mut n: Option<usize> = None;
        while let Some(digit) = self.peek().and_then(|(_, c)| c.to_digit(10)) {
            self.next += 1;
            n = Some(n.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize));
        }
        match n {
            Some(n) => Ok(Some(n)),
            None => Err(LettersError::Repeat { at }),
        }
    }
}

/// The layout of stages with these numbers of layers, the MTP modules in stage `mtp`: what
/// [`stages`] reads. Equal stages in a row are written once.
pub fn write(layers: &[u64], mtp: usize, modules: u32) -> String {
    let end = layers.len().saturating_sub(1);
    let many = |letter: char, n: u64| match n {
        0 => String::new(),
        1 => letter.to_string(),
        2 => format!("{letter}{letter}"),
        n => format!("{letter}*{n}"),
    };
    let stages: Vec<String> = layers
        .iter()
        .enumerate()
        .map(|(g, n)| {
            let embed = if g == 0 { "E" } else { "" };
            let modules = many('m', if g == mtp { u64::from(modules) } else { 0 });
            let loss = if g == end { "L" } else { "" };
            format!("{embed}{}{modules}{loss}", many('t', *n))
        })
        .collect();
    let mut out = String::new();
    let mut at = 0;
    while at < stages.len() {
        let same = stages[at..end.max(at)].iter().take_while(|s| **s == stages[at]).count();
        let stage = &stages[at];
        match same {
            0 => out += stage,
            1 => out += &format!("{stage}|"),
            n => out += &format!("({stage}|)*{n}"),
        }
        at += same.max(1);
    }
    out
}
