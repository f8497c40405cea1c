//! `weir certificates`: which certificates there are, when they end, and how and when each is renewed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};
use weir_acme::{Issued, State, Store};
use weir_config::{Certificate, Config, Issuer, is_local_name, read};
use weir_observe::console;
use weir_tools::command::{Source, print, refuse};

use super::{EX_UNAVAILABLE, trust::own_certificates};

/// Flags of `weir certificates`.
#[derive(Debug, Args)]
pub struct CertificatesArgs {
    /// The configuration file [default: ./weir.toml, else /etc/weir/weir.toml, else the folder of weir serve FOLDER]
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Print JSON
    #[arg(long, conflicts_with = "new_account_key")]
    pub json: bool,

    /// Give the account at the authority a new key, for example because somebody may know the old one. Needs a running weir
    #[arg(long)]
    pub new_account_key: bool,
}

/// A certificate and where it comes from.
struct Listed {
    name: String,
    chain: PathBuf,
    /// Who signs the certificate, if weir renews it.
    issuer: Option<Issuer>,
    /// The names that the configuration wants; empty: unknown.
    wanted: Vec<String>,
    /// Its names are proved by records that the operator sets.
    by_record: bool,
    /// It was got on demand, and is not in the configuration.
    on_demand: bool,
}

/// Runs `weir certificates`.
pub fn main(args: &CertificatesArgs) -> ExitCode {
    let usual = ["weir.toml", "/etc/weir/weir.toml"].map(PathBuf::from);
    let config = args.config.clone();
    let config = config.or_else(|| usual.into_iter().find(|file| file.exists()));
    if args.new_account_key {
        return new_account_key(config.as_deref());
    }
    let list = match config {
        Some(file) => of_config(&file),
        None => Ok(own_certificates().map_or_else(Vec::new, |folder| of_folder(&folder))),
    };
    let list = match list {
        Ok(list) => list,
        Err(code) => return code,
    };
    if list.is_empty() && !args.json {
        let hint = "weir makes certificates for sites with tls = \"auto\", and for weir serve FOLDER --domain NAME";
        console::say_error("there are no certificates", hint);
        return ExitCode::from(EX_UNAVAILABLE);
    }
    match args.json {
        true => {
            let all: Vec<Value> = list.iter().map(Listed::json).collect();
            print(&format!("{:#}\n", json!({ "certificates": all })))
        }
        false => print(&list.iter().map(Listed::text).collect::<Vec<_>>().join("\n")),
    }
}

/// Asks the running weir for another key of the account, and waits for it.
fn new_account_key(file: Option<&Path>) -> ExitCode {
    let account = match file {
        Some(file) => match configuration(file) {
            Ok(config) => Store::at(&config.tls.certificates).account(&config.tls.acme.directory),
            Err(code) => return code,
        },
        None => match own_certificates() {
            Some(folder) => account_in(&folder),
            None => {
                console::say_error(
                    "there is no folder of certificates",
                    "name the configuration: -c FILE",
                );
                return ExitCode::from(EX_UNAVAILABLE);
            }
        },
    };
    if !account.is_file() {
        let hint = "weir makes one with its first order at the authority";
        console::say_error(format!("there is no account: {}", account.display()), hint);
        return ExitCode::from(EX_UNAVAILABLE);
    }
    let request = Store::key_request(&account);
    if let Err(error) = fs::write(&request, "") {
        let hint = "run this as the user who starts weir";
        console::say_error(format!("{}: {error}", request.display()), hint);
        return ExitCode::from(EX_UNAVAILABLE);
    }
    let begin = Instant::now();
    loop {
        match fs::read_to_string(&request) {
            Err(_) => return print("the account has a new key\n"),
            Ok(cause) if !cause.is_empty() => {
                let _ = fs::remove_file(&request);
                let hint = "the account has its old key; try again later";
                console::say_error(
                    format!("the authority has not changed the key: {cause}"),
                    hint,
                );
                return ExitCode::from(EX_UNAVAILABLE);
            }
            Ok(_) if begin.elapsed() > LIMIT => {
                let _ = fs::remove_file(&request);
                let hint = "start weir; if it runs, an order may be under way";
                console::say_error(
                    format!("no weir has answered for {} s", LIMIT.as_secs()),
                    hint,
                );
                return ExitCode::from(EX_UNAVAILABLE);
            }
            Ok(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The account in the folder of `weir serve FOLDER`, which has one authority.
fn account_in(folder: &Path) -> PathBuf {
    let accounts = folder.join("accounts");
    let files = fs::read_dir(&accounts).into_iter().flatten().flatten();
    let mut files = files.map(|entry| entry.path());
    let account = files.find(|path| path.extension().is_some_and(|kind| kind == "json"));
    account.unwrap_or(accounts)
}

fn configuration(file: &Path) -> Result<Config, ExitCode> {
    let source = Source::of_file(file)?;
    let checked = read(&source.name, &source.text, &source.environment);
    Ok(checked.map_err(|wrong| refuse(&wrong))?.config)
}

fn of_config(file: &Path) -> Result<Vec<Listed>, ExitCode> {
    let config = configuration(file)?;
    let challenge = config.tls.acme.challenge.as_deref();
    let by_record = challenge == Some("dns-persist-01");
    let listed = |certificate: Certificate| Listed {
        by_record,
        on_demand: false,
        issuer: certificate.auto.as_ref().map(|auto| auto.issuer),
        wanted: certificate.auto.map(|auto| auto.names).unwrap_or_default(),
        name: certificate.name,
        chain: certificate.chain,
    };
    let names = match config.demand() {
        Some(_) => Store::at(&config.tls.certificates).demanded_names(config.tls.acme.ask_max),
        None => Vec::new(),
    };
    let demanded = names.into_iter().map(|name| Listed {
        chain: Store::at(&config.tls.certificates).demanded(&name),
        issuer: Some(Issuer::Acme),
        wanted: vec![name.clone()],
        name,
        by_record: false,
        on_demand: true,
    });
    let demanded: Vec<Listed> = demanded.collect();
    let all = config.certificates.into_iter().map(listed);
    Ok(all.chain(demanded).collect())
}

/// The certificates in a folder that weir writes.
fn of_folder(folder: &Path) -> Vec<Listed> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut list: Vec<Listed> = entries
        .map(|entry| Listed {
            name: entry.file_name().to_string_lossy().replacen('_', "*", 1),
            chain: entry.path().join("chain.pem"),
            issuer: Some(match is_local_name(&entry.file_name().to_string_lossy()) {
                true => Issuer::Local,
                false => Issuer::Acme,
            }),
            wanted: Vec::new(),
            by_record: false,
            on_demand: false,
        })
        .filter(|listed| listed.chain.exists())
        .collect();
    list.sort_by(|one, other| one.name.cmp(&other.name));
    list
}

impl Listed {
    /// The content of the file, or why it is not known.
    fn issued(&self) -> Result<Issued, String> {
        let shown = self.chain.display();
        match fs::File::open(&self.chain) {
            Err(error) => Err(format!("{shown}: {error}")),
            Ok(_) => Issued::read(&self.chain)
                .ok_or_else(|| format!("{shown}: there is no certificate in it")),
        }
    }

    /// The state of the last order, if it failed.
    fn failure(&self) -> Option<State> {
        let state = self.issuer.and_then(|_| State::read(&self.chain));
        state.filter(|state| state.error.is_some())
    }

    /// The TXT records that the operator must set (dns-persist-01).
    fn records(&self) -> Vec<(String, String)> {
        let state = State::read(&self.chain).filter(|_| self.by_record);
        state.map(|state| state.records).unwrap_or_default()
    }

    /// When it is renewed (seconds since 1970).
    fn renew_at(&self, issued: &Issued) -> i64 {
        issued.renew_with(State::read(&self.chain).as_ref())
    }

    fn text(&self) -> String {
        let row = |name: &str, value: &str| format!("  {name:<10} {value}\n");
        let mut out = format!("{}\n", self.name);
        match self.issued() {
            Ok(issued) => {
                let names: Vec<&str> = issued.names.iter().map(String::as_str).collect();
                out += &row("names", &names.join(", "));
                out += &row("ends", &date(issued.not_after));
                out += &row("issuer", &issued.issuer);
                let at = date(self.renew_at(&issued));
                out += &row(
                    "renewed",
                    &match self.issuer {
                        Some(Issuer::Local) => format!("by weir's local CA, at {at}"),
                        Some(Issuer::Acme) if self.on_demand => {
                            format!("by ACME, at {at}, if `ask` allows it")
                        }
                        Some(Issuer::Acme) => format!("by ACME, at {at}"),
                        None => {
                            "by the program that writes its files; weir uses changed files within a second"
                                .into()
                        }
                    },
                );
            }
            Err(error) => {
                out += &row("names", &self.wanted.join(", "));
                out += &row("error", &error);
            }
        }
        if let Some(state) = self.failure() {
            let error = state.error.unwrap_or_default();
            out += &row(
                "last order",
                &format!("failed at {}: {error}", date(state.at)),
            );
            out += &row("next", &date(state.next));
        }
        for (name, value) in self.records() {
            out += &row("record", &format!("{name} TXT \"{value}\""));
        }
        out += &row("file", &self.chain.display().to_string());
        out
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "name": self.name,
            "file": self.chain,
            "on_demand": self.on_demand,
            "renewed_by": match self.issuer {
                Some(Issuer::Local) => "local CA",
                Some(Issuer::Acme) => "ACME",
                None => "others",
            },
            "last_error": Value::Null,
            "records": self.records().iter().map(|(name, value)| {
                json!({ "name": name, "type": "TXT", "value": value })
            }).collect::<Vec<_>>(),
        });
        if let Some(state) = self.failure() {
            value["last_error"] = json!(state.error);
            value["failed_at"] = json!(date(state.at));
            value["next_order"] = json!(date(state.next));
            value["failures"] = json!(state.failures);
        }
        match self.issued() {
            Ok(issued) => {
                value["names"] = json!(issued.names);
                value["not_before"] = json!(date(issued.not_before));
                value["not_after"] = json!(date(issued.not_after));
                value["issuer"] = json!(issued.issuer);
                value["error"] = Value::Null;
                if self.issuer.is_some() {
                    value["renew_at"] = json!(date(self.renew_at(&issued)));
                }
            }
            Err(error) => {
                value["names"] = json!(self.wanted);
                value["error"] = json!(error);
            }
        }
        value
    }
}

/// A time, in UTC.
fn date(seconds: i64) -> String {
    let time = Timestamp::from_second(seconds);
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// How long to wait for a new key: an order may come first.
const LIMIT: Duration = Duration::from_secs(60);
