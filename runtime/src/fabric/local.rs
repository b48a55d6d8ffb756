//! All ranks in one process, a thread a rank.
//!
//! A message is put into the receiver's mailbox under its tag; a collective is a meeting of a group,
//! in which each rank leaves its part and takes the parts of all. Sums are then made by each rank in
//! the order of ranks, so that they have the same bits everywhere. Nothing here waits for ever: when
//! a rank ends early, those that wait for it are told.

use super::Group;
use anyhow::{Result, anyhow, bail};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use vlmc_artifact::{Mesh, Place};

/// Another rank has stopped.
#[derive(Debug, thiserror::Error)]
#[error("rank {rank} has stopped while this one waited for {what}: {why}")]
pub struct Waited {
    rank: usize,
    what: String,
    why: String,
}

/// The exchange of all ranks of a process. `K` are tags of messages, `V` what is exchanged.
pub struct Local<K, V> {
    mesh: Mesh,
    state: Mutex<State<K, V>>,
    changed: Condvar,
}

struct State<K, V> {
    /// Messages that wait for their receiver: source, target, tag.
    mail: HashMap<(usize, usize, K), V>,
    /// Meetings by group and by how many the group has had.
    meetings: HashMap<(Group, usize, usize), Meeting<V>>,
    /// The rank that ended early, and why.
    failed: Option<(usize, String)>,
}

struct Meeting<V> {
    parts: Vec<Option<V>>,
    all: Option<Arc<Vec<V>>>,
    left: usize,
}

impl<K: Eq + Hash + Clone + fmt::Debug, V> Local<K, V> {
    /// The exchange of this mesh.
    pub fn new(mesh: Mesh) -> Arc<Self> {
        let state = State { mail: HashMap::new(), meetings: HashMap::new(), failed: None };
        Arc::new(Local { mesh, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// The end of a rank.
    pub fn port(self: &Arc<Self>, rank: usize) -> Port<K, V> {
        let place = self.mesh.place(rank);
        Port { fabric: self.clone(), rank, place, meetings: HashMap::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        // A rank that panics while it holds the lock has changed nothing by half.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One rank's end of the exchange.
pub struct Port<K, V> {
    fabric: Arc<Local<K, V>>,
    rank: usize,
    place: Place,
    /// How often each group has met.
    meetings: HashMap<Group, usize>,
}

impl<K: Eq + Hash + Clone + fmt::Debug, V> Port<K, V> {
    /// Where this rank is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The number of this rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The ranks there are.
    pub fn mesh(&self) -> Mesh {
        self.fabric.mesh
    }

    /// The ranks of a group, in order, and which of them this is.
    pub fn members(&self, group: Group) -> (Vec<usize>, usize) {
        let mesh = self.fabric.mesh;
        let all = 0..mesh.size().unwrap_or(0);
        let inside = |rank: &usize| {
            let p = mesh.place(*rank);
            let (pp, dp, cp) =
                (p.pp == self.place.pp, p.dp == self.place.dp, p.cp == self.place.cp);
            match group {
                Group::World => true,
                Group::Replicas => pp,
                Group::Context => pp && dp,
                Group::Pipeline => dp && cp,
            }
        };
        let members: Vec<usize> = all.filter(inside).collect();
        let at = members.iter().position(|r| *r == self.rank).unwrap_or(0);
        (members, at)
    }

    /// Sends to the rank at a place.
    ///
    /// # Errors
    /// When the same was sent before and nobody has taken it.
    pub fn send(&self, to: Place, tag: K, value: V) -> Result<()> {
        let to = self.fabric.mesh.rank(to);
        let mut state = self.fabric.lock();
        if state.mail.insert((self.rank, to, tag.clone()), value).is_some() {
            bail!("{tag:?} is sent to rank {to} again before it was received");
        }
        self.fabric.changed.notify_all();
        Ok(())
    }

    /// Waits for what the rank at a place sends.
    ///
    /// # Errors
    /// When a rank has ended early.
    pub fn receive(&self, from: Place, tag: K) -> Result<V> {
        let key = (self.fabric.mesh.rank(from), self.rank, tag);
        let mut state = self.fabric.lock();
        loop {
            if let Some(v) = state.mail.remove(&key) {
                return Ok(v);
            }
            if let Some((rank, why)) = &state.failed {
                bail!(Waited { rank: *rank, what: format!("{:?}", key.2), why: why.clone() });
            }
            state =
                self.fabric.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Leaves this rank's part and gives the parts of all ranks of a group, in their order.
    ///
    /// # Errors
    /// When a rank has ended early.
    pub fn exchange(&mut self, group: Group, part: V) -> Result<Arc<Vec<V>>> {
        let (members, at) = self.members(group);
        let count = self.meetings.entry(group).or_insert(0);
        *count += 1;
        // Groups of one kind have different first members.
        let key = (group, members.first().copied().unwrap_or(0), *count);
        let mut state = self.fabric.lock();
        let meeting = state.meetings.entry(key).or_insert_with(|| Meeting {
            parts: members.iter().map(|_| None).collect(),
            all: None,
            left: members.len(),
        });
        if let Some(slot) = meeting.parts.get_mut(at) {
            *slot = Some(part);
        }
        if meeting.parts.iter().all(Option::is_some) {
            let parts = meeting.parts.iter_mut().filter_map(Option::take);
            meeting.all = Some(Arc::new(parts.collect()));
            self.fabric.changed.notify_all();
        }
        loop {
            let meeting =
                state.meetings.get_mut(&key).ok_or_else(|| anyhow!("the meeting is gone"))?;
            if let Some(all) = meeting.all.clone() {
                meeting.left -= 1;
                if meeting.left == 0 {
                    state.meetings.remove(&key);
                }
                return Ok(all);
            }
            if let Some((rank, why)) = &state.failed {
                bail!(Waited { rank: *rank, what: group.to_string(), why: why.clone() });
            }
            state =
                self.fabric.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Tells all ranks that this one has stopped.
    pub fn fail(&self, why: &str) {
        let mut state = self.fabric.lock();
        state.failed.get_or_insert((self.rank, why.to_string()));
        self.fabric.changed.notify_all();
    }
}
