//! What the programs (`[program.NAME]`) are started with.

use std::{ffi::OsString, rc::Rc};

use weir_sys::identity;

use super::{Program, pools::Pools};
use crate::programs::Zone;

/// A program as it is started on this machine.
#[derive(Debug, Clone)]
pub(crate) struct PlannedProgram {
    pub(crate) program: Rc<Program>,
    /// The time zone of its schedule.
    pub(crate) zone: Zone,
}

impl Pools<'_> {
    /// The programs; without those that have a problem.
    pub(super) fn programs(&mut self) -> Vec<PlannedProgram> {
        let config = self.config;
        let programs = config.programs.iter();
        programs
            .filter_map(|program| self.planned(program))
            .collect()
    }

    fn planned(&mut self, settings: &weir_config::Program) -> Option<PlannedProgram> {
        let table = format!("program.{}", settings.name);
        let zone = Zone::named(settings.timezone.as_deref());
        if let Err(cause) = &zone {
            let mend = "write a name such as \"Europe/Berlin\"; the package tzdata has them";
            self.problem(&table, "timezone", cause.clone(), mend);
        }
        let mut program = self.program(&table, &settings.argv, &settings.process)?;
        let environment = &mut program.environment;
        let written = |name: &str| settings.process.env.iter().any(|(other, _)| other == name);
        let mut put = |name: &str, value: OsString| {
            if !written(name) {
                environment.retain(|(other, _)| other != name);
                environment.push((name.into(), value));
            }
        };
        put("PATH", std::env::var_os("PATH").unwrap_or(PATH.into()));
        let uid = program.identity.as_ref().map(|who| who.uid);
        let uid = uid.unwrap_or_else(|| identity::current().0);
        if let Ok(Some(user)) = self.us.accounts.user_by_id(uid) {
            put("USER", user.name.clone().into());
            put("LOGNAME", user.name.into());
            put("HOME", user.home.into());
        }
        Some(PlannedProgram {
            program: Rc::new(program),
            zone: zone.ok()?,
        })
    }
}

/// Where programs are searched if weir itself has no PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
