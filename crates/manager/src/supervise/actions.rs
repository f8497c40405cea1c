//! Requests of operators.

use weir_control::Action;

use super::{Manager, Reload, Requester, Stopping};

impl Manager<'_> {
    /// Performs an operator's action.
    pub(super) fn act(&mut self, id: u32, action: Action) {
        let asker = Requester {
            generation: self.current.id,
            id,
        };
        if let Action::Stop | Action::StopNow = action {
            self.end_handing();
        }
        match action {
            Action::Reload if self.stopping == Stopping::No => {
                self.reload(Reload::Keep, Some(asker));
            }
            Action::Upgrade if self.stopping == Stopping::No => {
                self.reload(Reload::Upgrade, Some(asker));
            }
            _ if self.roles.in_charge.is_some() => {
                self.answer(&[asker], false, "another weir is in charge now: ask again");
            }
            Action::Stop if self.stopping == Stopping::No || self.leaves_at().is_some() => {
                self.answer(&[asker], true, "stopping");
                self.leave();
            }
            Action::StopNow => {
                self.answer(&[asker], true, "stopping at once");
                self.stop_at_once();
            }
            Action::Decline { on } if self.stopping == Stopping::No => {
                self.declines = on;
                self.current.decline(on);
                let text = match on {
                    true => {
                        "draining: not ready from now on; requests that still arrive are answered (weir drain --off ends this)"
                    }
                    false => "ready again",
                };
                log::info!("by an operator's command: {text}");
                self.answer(&[asker], true, text);
            }
            Action::Reload | Action::Upgrade | Action::Stop | Action::Decline { .. } => {
                self.answer(&[asker], false, "weir is stopping")
            }
            // The generation itself does this.
            Action::RestartPool { .. } | Action::SetPool { .. } => {}
        }
    }

    /// Tells operators the result of their actions.
    pub(super) fn answer(&mut self, askers: &[Requester], done: bool, text: &str) {
        for asker in askers {
            let generation = self.generations_mut().find(|g| g.id == asker.generation);
            if let Some(generation) = generation {
                generation.act_done(asker.id, done, text);
            }
        }
    }
}
