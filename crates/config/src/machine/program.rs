//! Programs: can they be started here?

use std::path::Path;

use super::Pass;
use crate::model::Program;

impl Pass<'_> {
    pub(super) fn programs(&mut self) {
        for program in &self.checked.config.programs {
            self.one(program);
        }
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
}

/// Where the machine's time zones are.
const ZONES: &str = "/usr/share/zoneinfo";
