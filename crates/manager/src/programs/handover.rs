//! What a new weir is told of the programs of the one before it.
//!
//! The old weir keeps its processes until they end: they are its children. The new one starts a process in a slot when the old one of that
//! slot has ended. It follows the schedules from where the old weir has stopped.

use serde::{Deserialize, Serialize};
use weir_pool::SlotState;

use super::{Programs, times::Last};

/// A program of the old weir.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handed {
    pub(crate) name: String,
    /// How far its schedule was followed.
    #[serde(default)]
    pub(crate) last: Option<Last>,
    /// The slots in which something still runs.
    #[serde(default)]
    pub(crate) slots: Vec<usize>,
}

impl Programs {
    /// What the new weir must know.
    pub(crate) fn handed(&self) -> Vec<Handed> {
        let now = self.context.micros(std::time::Instant::now());
        let programs = self.list.iter().map(|program| {
            let slots = program.life.slots(now).enumerate();
            let runs =
                |state: SlotState| !matches!(state, SlotState::Resting | SlotState::Waiting(_));
            let taken = slots.filter(|(_, state)| runs(*state));
            Handed {
                name: program.settings.program.name.clone(),
                last: program.last().map(|(_, last)| last),
                slots: taken.map(|(index, _)| index).collect(),
            }
        });
        programs.collect()
    }

    /// The old weir tells what still runs.
    pub(crate) fn hear(&mut self, handed: &[Handed]) {
        for program in &mut self.list {
            let name = &program.settings.program.name;
            let same = handed.iter().find(|handed| handed.name == *name);
            let taken = same.map_or(&[][..], |handed| &handed.slots);
            let now = self.context.micros(std::time::Instant::now());
            for index in 0..program.life.slots(now).count() {
                if program.life.is_elsewhere(index) && !taken.contains(&index) {
                    program.life.gone(index);
                }
            }
        }
    }
}
