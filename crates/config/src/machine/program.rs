//! Programs: can they be started here, and can weir note the times of their schedules?

use std::path::Path;

use super::{Obstacle, Pass};
use crate::model::Program;

impl Pass<'_> {
    pub(super) fn programs(&mut self) {
        for program in &self.checked.config.programs {
            self.one(program);
        }
        self.state_dir();
    }

    fn one(&mut self, program: &Program) {
        let path = format!("program.{}", program.name);
        self.program(&path, &program.argv, &program.process);
        self.workers(
            &path,
            &program.process,
            "a program runs the application's code",
        );
        if let Some(zone) = &program.timezone
            && !self.machine.exists(&Path::new(ZONES).join(zone))
        {
            let message = format!("{zone:?} is not a time zone of this machine");
            let hint = "write a name such as \"Europe/Berlin\": timedatectl list-timezones; the package tzdata has them";
            self.error(&format!("{path}.timezone"), message, hint);
        }
    }

    /// The folder in which the manager notes times. weir goes on without it.
    fn state_dir(&mut self) {
        let config = &self.checked.config;
        let mut programs = config.programs.iter();
        let scheduled = programs.find(|program| program.schedule.is_some());
        let (at, folder) = match (&config.server.state_dir, scheduled) {
            (Some(folder), _) => ("server.state_dir".to_owned(), folder.clone()),
            (None, Some(program)) => (
                format!("program.{}.schedule", program.name),
                self.machine.usual_state_dir(),
            ),
            (None, None) => return,
        };
        let obstacle = match self.machine.folder(&folder) {
            Ok(()) if self.machine.may_write(&folder, None) => return,
            Ok(()) => format!(
                "the user who runs this check cannot create files in {}",
                folder.display()
            ),
            // weir makes it.
            Err(Obstacle::Absent(_)) if self.may_make(&folder) => return,
            Err(Obstacle::Absent(reason) | Obstacle::Barred(reason)) => reason,
        };
        let message = format!("{obstacle}: after a restart of weir, missed times are not made up");
        let hint = "write state_dir = \"FOLDER\" in [server], where the user who starts weir may create files";
        self.warning(&at, message, hint);
    }

    /// Whether weir can make this folder: only the last one of its path.
    fn may_make(&self, folder: &Path) -> bool {
        let parent = folder.parent().filter(|_| !self.machine.exists(folder));
        parent.is_some_and(|parent| {
            self.machine.folder(parent).is_ok() && self.machine.may_write(parent, None)
        })
    }
}

/// Where the machine's time zones are.
const ZONES: &str = "/usr/share/zoneinfo";
