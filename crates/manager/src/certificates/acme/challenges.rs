//! Answers to challenges: given to the gateway, and put into the folder of certificates, so that other nodes can give them too.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use weir_acme::{ChallengeAnswer, Node, SEEN_EVERY, SharedAnswer, SharedChallenges, Store};
use weir_control::{Challenges, GivenChallenge, ToGateway};
use weir_sys::memory;

/// Answers for this node's orders, and for orders of other nodes.
#[derive(Debug, Default)]
pub(super) struct Answers {
    own: Vec<Placed>,
    shared: Option<Shared>,
    /// The number of the last message to the gateway.
    message: u32,
    /// The generation and gateway that know `message`.
    told: Option<(u32, Option<u32>, u32)>,
}

/// What nodes share.
#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    challenges: SharedChallenges,
    /// This node. `None`: it could not make itself known.
    node: Option<Node>,
    look_at: Instant,
    seen_at: Instant,
}

/// An answer for an order of this node.
#[derive(Debug)]
struct Placed {
    order: u32,
    number: u32,
    /// The message to the gateway that has it.
    message: u32,
    answer: ChallengeAnswer,
    state: PlacedState,
    /// The file of it.
    _file: Option<SharedAnswer>,
}

#[derive(Debug, Clone, Copy)]
enum PlacedState {
    /// The gateway does not have it yet.
    Waiting,
    /// The gateway has it, and other nodes have it at this time.
    Spreading(Instant),
    /// The process for certificates knows.
    Told,
}

impl Answers {
    /// From now on the answers of other nodes come from the folder of this store. `None`: nothing is ordered.
    pub(super) fn share(&mut self, store: Option<(&Store, &Path)>, now: Instant) {
        let Some((store, folder)) = store else {
            self.shared = None;
            return;
        };
        if self
            .shared
            .as_ref()
            .is_some_and(|shared| shared.folder == folder)
        {
            return;
        }
        let node = Node::new(store);
        if let Err(error) = &node {
            log::error!("this node cannot be made known to others: {error}");
        }
        self.shared = Some(Shared {
            folder: folder.to_owned(),
            challenges: SharedChallenges::new(store),
            node: node.ok(),
            look_at: now,
            seen_at: now + SEEN_EVERY,
        });
    }

    /// An order of this node has an answer.
    pub(super) fn put(&mut self, (order, number): (u32, u32), answer: ChallengeAnswer) {
        self.message = self.message.wrapping_add(1);
        let shared = self.shared.as_ref();
        let file = shared.and_then(|shared| {
            let put = shared.challenges.put(&answer);
            put.inspect_err(|error| {
                log::error!("an answer to a challenge cannot be shared: {error}");
            })
            .ok()
        });
        self.own.push(Placed {
            order,
            number,
            message: self.message,
            answer,
            state: PlacedState::Waiting,
            _file: file,
        });
    }

    /// Removes the answers of an order.
    pub(super) fn forget(&mut self, order: u32) {
        let before = self.own.len();
        self.own.retain(|one| one.order != order);
        if self.own.len() != before {
            self.message = self.message.wrapping_add(1);
        }
    }

    /// The gateway has the answers of this message.
    pub(super) fn are_set(&mut self, message: u32, now: Instant) {
        let shared = self.shared.as_ref();
        let has_others = shared.is_some_and(|shared| {
            let node = shared.node.as_ref();
            node.is_none_or(Node::has_others)
        });
        let until = match has_others {
            true => now + SPREADING,
            false => now,
        };
        for one in &mut self.own {
            if matches!(one.state, PlacedState::Waiting) && one.message <= message {
                one.state = PlacedState::Spreading(until);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let spreading = self.own.iter().filter_map(|one| match one.state {
            PlacedState::Spreading(until) => Some(until),
            _ => None,
        });
        spreading
            .chain(self.shared.as_ref().map(|shared| shared.look_at))
            .min()
    }

    /// Looks at the folder. Returns challenges whose answers are in place now.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<u32> {
        if let Some(shared) = &mut self.shared
            && now >= shared.look_at
        {
            shared.look_at = now + LOOK_EVERY;
            if shared.challenges.look() {
                self.message = self.message.wrapping_add(1);
            }
            if now >= shared.seen_at {
                shared.seen_at = now + SEEN_EVERY;
                if let Some(Err(error)) = shared.node.as_ref().map(Node::be_seen) {
                    log::warn!("this node cannot be made known to others: {error}");
                }
            }
        }
        let mut placed = Vec::new();
        for one in &mut self.own {
            if matches!(one.state, PlacedState::Spreading(until) if until <= now) {
                one.state = PlacedState::Told;
                placed.push(one.number);
            }
        }
        placed
    }

    /// What a gateway must know, if it does not know it.
    pub(super) fn message(&mut self, generation: u32, gateway: Option<u32>) -> Option<ToGateway> {
        let state = (generation, gateway, self.message);
        // A new gateway knows nothing, and needs nothing if there has never been anything.
        if self.told == Some(state) || self.message == 0 {
            return None;
        }
        self.told = Some(state);
        let own = self.own.iter().map(|one| &one.answer);
        let shared = self.shared.iter();
        let others = shared.flat_map(|shared| shared.challenges.list());
        let others =
            others.filter(|other| self.own.iter().all(|own| own.answer.token != other.token));
        let list = own.chain(others).map(|answer| GivenChallenge {
            name: answer.name.clone(),
            token: answer.token.clone(),
            text: answer.text.clone(),
            certificate: answer.certificate.clone(),
        });
        let challenges = Challenges {
            list: list.collect(),
        };
        let file = memory::file(c"challenges", &challenges.encode()).ok()?;
        Some(ToGateway::Challenges {
            number: self.message,
            file,
        })
    }
}

/// How often the folder is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// After this time other nodes have an answer: they have looked, and told their gateways.
const SPREADING: Duration = Duration::from_millis(1200);
