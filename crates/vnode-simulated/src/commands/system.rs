//! Programs about the container itself.

use super::{Call, Ended, Stop};
use crate::plan::amount;
use std::time::Duration;

const SIGNALS: [(&str, i32); 8] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
];

impl Call<'_> {
    pub(super) async fn date(&mut self) -> Ended {
        let now = self.session.view.clock.now();
        let mut formats = self
            .arguments
            .iter()
            .filter_map(|argument| argument.strip_prefix('+'));
        let format = formats.next_back().unwrap_or("%a %b %e %H:%M:%S UTC %Y");
        let zoned = now.to_zoned(jiff::tz::TimeZone::UTC);
        let text = jiff::fmt::strtime::format(format, &zoned)
            .map_err(|error| Stop::Failed(format!("invalid format {format:?}: {error}")))?;
        self.print(&format!("{text}\n")).await?;
        Ok(0)
    }

    pub(super) async fn id(&mut self) -> Ended {
        let text = match self.arguments.first().map(String::as_str) {
            Some("-u" | "-g") => "0\n",
            Some("-un" | "-gn") => "root\n",
            _ => "uid=0(root) gid=0(root) groups=0(root)\n",
        };
        self.print(text).await?;
        Ok(0)
    }

    pub(super) async fn uname(&mut self) -> Ended {
        let text = match self.arguments.first().map(String::as_str) {
            Some("-n") => self.session.view.hostname.to_string(),
            Some("-a") => format!(
                "Linux {} simulated {}",
                self.session.view.hostname,
                std::env::consts::ARCH
            ),
            Some("-m") => std::env::consts::ARCH.to_owned(),
            _ => "Linux".to_owned(),
        };
        self.print(&format!("{text}\n")).await?;
        Ok(0)
    }

    pub(super) async fn ps(&mut self) -> Ended {
        let main = self.session.world.main();
        let mut text = format!("PID   USER     COMMAND\n    1 root     {main}\n");
        if self.session.process != 1 {
            let own = format!("{:>5} root     {}\n", self.session.process, self.name);
            text.push_str(&own);
        }
        self.print(&text).await?;
        Ok(0)
    }

    pub(super) async fn kill(&mut self) -> Ended {
        let mut signal = 15;
        let mut code = 0;
        let mut arguments = self.arguments.iter();
        while let Some(argument) = arguments.next() {
            let Some(option) = argument.strip_prefix('-') else {
                match argument.parse::<u32>() {
                    Ok(1) => self.session.world.signal(signal),
                    Ok(process) if process == self.session.process => return Err(Stop::Exit(128 + signal)),
                    Ok(process) => {
                        code = self
                            .complain(&format!("can't kill pid {process}: No such process"))
                            .await;
                    }
                    Err(_) => code = self.complain(&format!("invalid number '{argument}'")).await,
                }
                continue;
            };
            if option == "l" {
                let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
                self.print(&format!("{}\n", names.join(" "))).await?;
                return Ok(0);
            }
            let name = if option == "s" {
                arguments.next().map_or("", String::as_str)
            } else {
                option
            };
            let known = SIGNALS
                .iter()
                .find(|(known, _)| *known == name.trim_start_matches("SIG"));
            match known.map(|(_, number)| *number).or_else(|| name.parse().ok()) {
                // 0 asks whether there is such a process.
                Some(0) => return Ok(0),
                Some(number) => signal = number,
                None => return Ok(self.complain(&format!("bad signal name '{name}'")).await),
            }
        }
        Ok(code)
    }

    pub(super) async fn sleep(&mut self) -> Ended {
        let mut sum = Duration::ZERO;
        for argument in self.arguments {
            if argument == "infinity" {
                std::future::pending::<()>().await;
            }
            let seconds = argument
                .parse::<f64>()
                .ok()
                .and_then(|s| Duration::try_from_secs_f64(s).ok());
            let span = seconds.or_else(|| amount::span(argument));
            let span = span.ok_or_else(|| Stop::Failed(format!("invalid number '{argument}'")))?;
            sum = sum
                .saturating_add(span)
                .min(Duration::from_secs(100 * 366 * 86_400));
        }
        tokio::time::sleep(sum).await;
        Ok(0)
    }

    pub(super) async fn stty(&mut self) -> Ended {
        let Some(tty) = &self.session.tty else {
            return Ok(self.complain("standard input: Not a tty").await);
        };
        let size = tty.size();
        match self.arguments.first().map(String::as_str) {
            Some("size") => self.print(&format!("{} {}\n", size.height, size.width)).await?,
            None | Some("-a") => {
                self.print(&format!(
                    "speed 38400 baud; rows {}; columns {};\n",
                    size.height, size.width
                ))
                .await?;
            }
            Some(_) => {}
        }
        Ok(0)
    }

    /// `env` and `printenv`: the environment, or with `printenv` one variable of it.
    pub(super) async fn env(&self) -> Ended {
        let environment = &self.state.environment;
        let Some(name) = self.arguments.first() else {
            let lines = environment
                .iter()
                .map(|(name, value)| format!("{name}={value}\n"));
            return self.print(&lines.collect::<String>()).await.map(|()| 0);
        };
        if self.name == "env" {
            let message = "to run a command in another environment is not simulated";
            return Err(Stop::Failed(message.to_owned()));
        }
        match environment.get(name) {
            Some(value) => self.line(value).await,
            None => Ok(1),
        }
    }
}
