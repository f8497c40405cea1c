//! The shard beside a plain one, and beside the policy as its authors describe it.

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::key::Seed;

fn hash(number: u32) -> KeyHash {
    Seed::from_bytes([3; 8]).hash(&number.to_le_bytes())
}

impl<V> Shard<V> {
    /// Checks that lists, sums and limits agree.
    pub(crate) fn check(&self) {
        let mut seen = 0;
        for (queue, is_main) in [(&self.small, false), (&self.main, true)] {
            let (mut bytes, mut before, mut place) = (0, NONE, queue.oldest);
            while place != NONE {
                let node = &self.nodes[place as usize];
                assert_eq!((node.older, node.is_main), (before, is_main));
                assert!(node.value.is_some());
                bytes += u64::from(node.weight);
                (before, place) = (place, node.newer);
                seen += 1;
            }
            assert_eq!((queue.newest, queue.bytes), (before, bytes));
        }
        assert_eq!(seen, self.table.len());
        let values = self.nodes.iter().filter(|node| node.value.is_some());
        assert_eq!(values.count(), seen);
        let mut unused = 0;
        let mut place = self.unused;
        while place != NONE {
            place = self.nodes[place as usize].newer;
            unused += 1;
        }
        assert_eq!(unused + seen, self.nodes.len());
        assert!(self.bytes() <= self.limits.bytes);
        assert!(seen <= self.limits.values);
        assert!(self.ghosts.table.len() <= self.ghosts.order.len());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Get(u32),
    Insert(u32, u32),
    Remove(u32),
    Grow(u32, u32),
    Reserve(u64),
    GiveBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_u32).prop_map(Step::Get),
        6 => (0..40_u32, 1..120_u32).prop_map(|(key, weight)| Step::Insert(key, weight)),
        1 => (0..40_u32).prop_map(Step::Remove),
        1 => (0..40_u32, 1..60_u32).prop_map(|(key, more)| Step::Grow(key, more)),
        1 => (1..200_u64).prop_map(Step::Reserve),
        1 => Just(Step::GiveBack),
    ]
}

proptest! {
    /// What it has is what was stored last, sums and limits hold after each step, and nothing is lost without being given back.
    #[test]
    fn it_holds_what_was_stored_within_its_limits(steps in prop::collection::vec(step(), 0..150)) {
        let limits = Limits { bytes: 500, values: 20 };
        let mut shard = Shard::new(limits);
        let mut stored: HashMap<u32, u32> = HashMap::new();
        let mut reserved = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let number = number as u32;
            let mut removed = Removed::new();
            match step {
                Step::Get(key) => {
                    prop_assert_eq!(shard.get(hash(key)).map(|(_, number)| *number), stored.get(&key).copied());
                }
                Step::Insert(key, weight) => {
                    let is_stored = shard.insert(hash(key), (key, number), weight, &mut removed);
                    prop_assert_eq!(is_stored, u64::from(weight) + reserved.iter().sum::<u64>() <= limits.bytes);
                    stored.insert(key, number);
                    // The one before was removed, too.
                    removed.retain(|(own, old)| *own != key || *old == number);
                }
                Step::Remove(key) => {
                    prop_assert_eq!(shard.remove(hash(key)).map(|(_, number)| number), stored.remove(&key));
                }
                Step::Grow(key, more) => shard.add_weight(hash(key), more, &mut removed),
                Step::Reserve(bytes) => {
                    if shard.reserve(bytes, &mut removed) {
                        reserved.push(bytes);
                    }
                }
                Step::GiveBack => reserved.drain(..).for_each(|bytes| shard.give_back(bytes)),
            }
            for (key, number) in removed {
                prop_assert_eq!(stored.remove(&key), Some(number));
            }
            prop_assert_eq!(shard.len(), stored.len());
            shard.check();
        }
    }
}

/// S3-FIFO as the paper's algorithm 1 has it, on plain lists, with weights in bytes. It shares no code with the shard.
struct Paper {
    limit: u64,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghost: VecDeque<u32>,
    ghosts: HashSet<u32>,
    /// Weight, uses, whether in main.
    known: HashMap<u32, (u64, u8, bool)>,
    bytes: [u64; 2],
}

impl Paper {
    fn new(limit: u64) -> Paper {
        Paper {
            limit,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            ghosts: HashSet::new(),
            known: HashMap::new(),
            bytes: [0, 0],
        }
    }

    /// True: a hit.
    fn ask(&mut self, key: u32, weight: u64) -> bool {
        if let Some((_, uses, _)) = self.known.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.bytes[0] + self.bytes[1] + weight > self.limit {
            if self.bytes[0] >= self.limit / 10 || self.main.is_empty() {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
        let is_main = self.ghosts.remove(&key);
        let queue = if is_main {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push_back(key);
        self.bytes[usize::from(is_main)] += weight;
        self.known.insert(key, (weight, 0, is_main));
        false
    }

    fn evict_small(&mut self) {
        while let Some(key) = self.small.pop_front() {
            let (weight, uses, _) = self.known[&key];
            self.bytes[0] -= weight;
            if uses > 1 {
                self.known.insert(key, (weight, 0, true));
                self.main.push_back(key);
                self.bytes[1] += weight;
                continue;
            }
            if self.ghosts.insert(key) {
                self.ghost.push_back(key);
            }
            while self.ghost.len() > self.known.len() {
                let oldest = self.ghost.pop_front().unwrap();
                self.ghosts.remove(&oldest);
            }
            self.known.remove(&key);
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            let (weight, uses, _) = self.known[&key];
            if uses > 0 {
                self.known.insert(key, (weight, uses - 1, true));
                self.main.push_back(key);
                continue;
            }
            self.known.remove(&key);
            self.bytes[1] -= weight;
            return;
        }
    }
}

/// Numbers from 0 on, of which the n-th is asked for in proportion to 1/(n+1)^skew.
pub(crate) struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    pub(crate) fn new(count: usize, skew: f64, seed: u64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=count).map(|n| {
            sum += 1.0 / (n as f64).powf(skew);
            sum
        });
        Zipf {
            sums: sums.collect(),
            state: seed,
        }
    }

    pub(crate) fn next(&mut self) -> u32 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = (z ^ (z >> 31)) as f64 / u64::MAX as f64;
        let wanted = part * self.sums.last().unwrap();
        self.sums.partition_point(|sum| *sum < wanted) as u32
    }
}

/// Sizes of pages: from 200 bytes to 12 KB, the same for each key.
pub(crate) fn size_of_page(key: u32) -> u32 {
    let mixed = key.wrapping_mul(0x9e37_79b1);
    200 + mixed % 1_000 * (1 + mixed / 1_000 % 12)
}

#[test]
fn hits_are_as_many_as_the_paper_says() {
    for (skew, asked) in [(0.7, 50_000), (0.9, 50_000), (1.1, 50_000)] {
        let limit = 2 << 20;
        let mut zipf = Zipf::new(50_000, skew, 5);
        let mut paper = Paper::new(limit);
        let mut shard = Shard::new(Limits {
            bytes: limit,
            values: usize::MAX,
        });
        let (mut of_paper, mut of_shard) = (0, 0);
        let mut removed = Removed::new();
        for _ in 0..asked {
            let key = zipf.next();
            let weight = size_of_page(key);
            of_paper += u32::from(paper.ask(key, weight.into()));
            match shard.get(hash(key)) {
                Some(_) => of_shard += 1,
                None => assert!(shard.insert(hash(key), key, weight, &mut removed)),
            }
            removed.clear();
        }
        shard.check();
        let difference = f64::from(of_paper) - f64::from(of_shard);
        let percent = |hits: f64| hits * 100.0 / f64::from(asked);
        println!(
            "skew {skew}: paper {:.2} %, shard {:.2} %",
            percent(of_paper.into()),
            percent(of_shard.into())
        );
        assert!(
            percent(difference.abs()) < 0.02,
            "{of_paper} and {of_shard} of {asked}"
        );
    }
}
