//! Examples and exit codes in the help of each command, in one place so that all commands read alike.
//!
//! A crate may give its command a text of its own (`after_help`) instead of a row here. Both have the same
//! form, which man pages rely on: a heading that ends with a colon, and indented lines below it.

use clap::Command;

/// Ends by a signal, and can fail before or after its start.
const OF_A_SERVICE: &str = "
  0    it was told to stop (SIGTERM or SIGINT)
  1    it failed after the start
  2    it was not started: a flag, a variable or a file is wrong, and the message says which one";

/// Does one thing and ends.
const OF_AN_ORDER: &str = "
  0    done
  1    it failed, and the message says why
  2    nothing was done: a flag or a name is wrong, or no lab is running in this directory";

const OF_A_KEY: &str = "
  0    done
  1    the result could not be printed
  2    nothing was done: a flag or a file is wrong, and the message says which one";

const OF_A_PROBE: &str = "
  0    success, or a warning
  1    failure
  2    a flag is wrong
  3    the probe itself failed, and a kubelet would ignore the result";

const OF_FILES: &str = "
  0    done
  1    it could not be written
  2    a flag is wrong";

/// Words after `evenkeel`, examples, exit codes.
type Row = (&'static str, &'static str, &'static str);

const ROWS: [Row; 35] = [
    (
        "",
        "
  evenkeel lab run tour              # see the whole system at work on this machine
  evenkeel status                    # the state of each node of a cluster
  evenkeel status shore-2            # why one node is treated as it is
  evenkeel help probe http           # the help of a command",
        "
  0    success
  1    it failed after the start, or the answer is no
  2    a flag, a variable or a file is wrong
Some commands have further exit codes, and their help lists them.",
    ),
    (
        "agent",
        "
  evenkeel agent --node shore-1 --kubeconfig /etc/kubernetes/kubelet.conf --leader-elect=false
  evenkeel agent --config /etc/evenkeel/agent.yaml
  evenkeel agent --node shore-1 --check ping,kubelet:timeout=0.5",
        OF_A_SERVICE,
    ),
    (
        "agent keygen",
        "
  evenkeel agent keygen --out roster.key",
        OF_A_KEY,
    ),
    (
        "agent rotate-key",
        "
  evenkeel agent rotate-key
  evenkeel agent rotate-key --key /etc/evenkeel/agent.key",
        OF_A_KEY,
    ),
    (
        "agent pubkey",
        "
  evenkeel agent pubkey --key roster.key",
        OF_A_KEY,
    ),
    (
        "controller",
        "
  evenkeel controller --mode observe           # decide and explain, but change nothing
  evenkeel controller --profile edge --zone-default shop-7
  evenkeel controller --config /etc/evenkeel/controller.yaml",
        OF_A_SERVICE,
    ),
    (
        "node-lifecycle",
        "
  evenkeel node-lifecycle --kubeconfig lab.kubeconfig
  evenkeel node-lifecycle --kubeconfig lab.kubeconfig --node-monitor-grace-period 15s",
        OF_A_SERVICE,
    ),
    (
        "vnode",
        "
  evenkeel vnode --provider simulated --nodes 100
  evenkeel vnode --provider koupleless --base-env dev
  evenkeel vnode --provider koupleless --config /etc/evenkeel/vnode.yaml",
        OF_A_SERVICE,
    ),
    (
        "apiserver",
        "
  evenkeel apiserver --port 0 --kubeconfig-out kubeconfig
  kubectl --kubeconfig kubeconfig get namespaces            # in another terminal",
        OF_A_SERVICE,
    ),
    (
        "lab",
        "
  evenkeel lab                              # five nodes and a workload, until Ctrl-C
  evenkeel lab --zones north=3,south=5
  evenkeel lab --installable                # all that `evenkeel install` needs
  evenkeel lab cut shore-2                  # in another terminal: cut the cloud link of a node
  evenkeel lab heal                         # repair everything",
        "
  0    it was told to stop
  1    it failed after the start
  2    it was not started: a flag or a file is wrong, or a port is in use
  130  it was interrupted before it was ready",
    ),
    (
        "lab run",
        "
  evenkeel lab run tour
  evenkeel lab run scenario.yaml --report report.json
  evenkeel lab run power-off --repeat 30    # measure it thirty times",
        "
  0    every assertion held
  1    an assertion did not hold, or the lab failed
  2    it was not started: a flag, the scenario or another file is wrong, or a port is in use
  130  it was interrupted",
    ),
    (
        "lab cut",
        "
  evenkeel lab cut shore-2                            # its link to the cloud
  evenkeel lab cut shore-2 --link peers               # its links to all other nodes
  evenkeel lab cut shore-2 --link shore-3 --drop 30   # lose 30 % instead",
        OF_AN_ORDER,
    ),
    (
        "lab kill",
        "
  evenkeel lab kill shore-3",
        OF_AN_ORDER,
    ),
    (
        "lab stall",
        "
  evenkeel lab stall shore-2 --for 3s",
        OF_AN_ORDER,
    ),
    (
        "lab restart-kubelet",
        "
  evenkeel lab restart-kubelet shore-2 --for 20s",
        OF_AN_ORDER,
    ),
    (
        "lab restart-agent",
        "
  evenkeel lab restart-agent shore-2 --for 20s",
        OF_AN_ORDER,
    ),
    (
        "lab crash",
        "
  evenkeel lab crash agent shore-2
  evenkeel lab crash controller leader
  evenkeel lab crash apiserver --for 6s",
        OF_AN_ORDER,
    ),
    (
        "lab crash agent",
        "
  evenkeel lab crash agent shore-2",
        OF_AN_ORDER,
    ),
    (
        "lab crash controller",
        "
  evenkeel lab crash controller             # all of them
  evenkeel lab crash controller leader
  evenkeel lab crash controller 2",
        OF_AN_ORDER,
    ),
    (
        "lab crash apiserver",
        "
  evenkeel lab crash apiserver --for 6s
  evenkeel lab crash apiserver --for 6s --stock",
        OF_AN_ORDER,
    ),
    (
        "lab heal",
        "
  evenkeel lab heal                         # everything
  evenkeel lab heal shore-2",
        OF_AN_ORDER,
    ),
    (
        "lab clean",
        "
  evenkeel lab clean --join .evenkeel/real/kubeconfig",
        "
  0    nothing of a lab is left
  1    it failed on the way: repeat the command
  2    nothing was done: a flag or the kubeconfig is wrong",
    ),
    (
        "lab watch",
        "
  evenkeel lab watch
  evenkeel lab watch --dir /tmp/lab         # a lab in another directory",
        OF_AN_ORDER,
    ),
    (
        "lab status",
        "
  evenkeel lab status
  evenkeel lab status -o wide               # taints with their full keys
  evenkeel lab status -o json",
        OF_AN_ORDER,
    ),
    (
        "elect",
        "
  evenkeel elect --lease jobs/mailer -- /usr/bin/mailer --queue main
  evenkeel elect --lease jobs/mailer --listen 127.0.0.1:4040 -- /usr/bin/mailer --queue main
  evenkeel elect --lease jobs/mailer --on-lost stop -- /usr/bin/mailer",
        "
  0    it was told to stop, and the command ended as it was asked to
  1    every other failure
  2    a flag is wrong
  75   leadership was lost (--on-lost exit)
  78   another candidate runs under the same identity
  126  the command cannot be run
  127  the command is not found
When the command ends by itself, the exit code is that of the command (128 + N if signal N ended it).",
    ),
    (
        "probe",
        "
  evenkeel probe http http://127.0.0.1:8080/healthz
  evenkeel probe run -f pod.yaml --for 2m
  evenkeel probe lint -f pod.yaml",
        "
  0    success
  1    failure
  2    a flag or the manifest is wrong
Single probes have a further exit code: see the help of each command.",
    ),
    (
        "probe run",
        "
  evenkeel probe run -f pod.yaml --address 10.0.0.7 --for 2m
  evenkeel probe run -f deployment.yaml --until-ready --for 1m
  kubectl get pod web-0 -o yaml | evenkeel probe run -f -",
        "
  0    all containers are ready at the end, and none had to be killed
  1    a container is not ready, or one had to be killed
  2    a flag or the manifest is wrong: one line for each mistake",
    ),
    (
        "probe lint",
        "
  evenkeel probe lint -f deployment.yaml
  kubectl get deployment web -o yaml | evenkeel probe lint -f - -o json",
        "
  0    there are no findings, or none above the level `info`
  1    there is a warning or an error
  2    a flag or the manifest is wrong: one line for each mistake",
    ),
    (
        "doctor",
        "
  evenkeel doctor                    # the cluster of the present kubeconfig, before or after an installation
  evenkeel doctor --output json
  evenkeel doctor --machine          # this node's kernel settings and ports",
        "
  0    nothing but notes
  1    there are warnings or errors
  2    the cluster could not be read, or a flag is wrong",
    ),
    (
        "install",
        "
  evenkeel install --dry-run         # print every object
  evenkeel install --image registry.example/evenkeel:0.1.0
  evenkeel install --profile edge --zone-default shop-7",
        "
  0    it is installed
  1    it failed, and what this command had made was removed again; else the message says what is left
  2    nothing was changed, and the message says why",
    ),
    (
        "upgrade",
        "
  evenkeel upgrade --mode act        # from now on it acts
  evenkeel upgrade --image registry.example/evenkeel:0.2.0",
        "
  0    done
  1    it failed on the way: repeat the command
  2    nothing was changed, and the message says why",
    ),
    (
        "uninstall",
        "
  evenkeel uninstall
  evenkeel uninstall --namespace pier --timeout 10m",
        "
  0    nothing is left
  1    something is left, and the message says what: repeat the command
  2    nothing was changed, and the message says why",
    ),
    (
        "status",
        "
  evenkeel status                           # one line for each node
  evenkeel status shore-2                   # one node: state, evidence, history
  evenkeel status zones -o wide
  evenkeel status incidents -o json",
        "
  0    all nodes are Healthy, and a controller works
  1    a node is not Healthy, or no controller works
  2    it could not be read: a flag is wrong, there is no such node, or the API server does not answer",
    ),
    (
        "completion",
        "
  source <(evenkeel completion bash)        # for this shell
  evenkeel completion bash > /etc/bash_completion.d/evenkeel
  evenkeel completion zsh > \"${fpath[1]}/_evenkeel\"
  evenkeel completion fish > ~/.config/fish/completions/evenkeel.fish",
        OF_FILES,
    ),
    (
        "man",
        "
  evenkeel man /usr/local/share/man/man1
  evenkeel man pages && man -l pages/evenkeel-status.1",
        OF_FILES,
    ),
];

/// Single probes: their examples. They share their exit codes.
const PROBES: [(&str, &str); 4] = [
    (
        "probe http",
        "
  evenkeel probe http http://127.0.0.1:8080/healthz
  evenkeel probe http -H 'Host: shop.example' --timeout 500ms https://10.0.0.7/ready",
    ),
    (
        "probe tcp",
        "
  evenkeel probe tcp 127.0.0.1:5432
  evenkeel probe tcp '[::1]:5432' --count 3 --interval 2s",
    ),
    (
        "probe grpc",
        "
  evenkeel probe grpc 127.0.0.1:9000
  evenkeel probe grpc 127.0.0.1:9000 --service shop.Orders",
    ),
    (
        "probe exec",
        "
  evenkeel probe exec -- /usr/bin/pg_isready
  evenkeel probe exec --as liveness -o json -- sh -c 'test -e /tmp/alive'",
    ),
];

/// The text of a command; `None` if this file has none.
fn text_of(path: &str) -> Option<String> {
    let row = ROWS.iter().find(|row| row.0 == path);
    let row = row.map(|(_, examples, codes)| (*examples, *codes));
    let probe = || PROBES.iter().find(|probe| probe.0 == path);
    let (examples, codes) = row.or_else(|| probe().map(|(_, examples)| (*examples, OF_A_PROBE)))?;
    Some(format!("Examples:{examples}\n\nExit codes:{codes}"))
}

/// Adds the texts to a command and all commands below it, for a program that the user calls `name`.
pub(crate) fn explained(command: Command, name: &str) -> Command {
    add(command, "", name)
}

fn add(mut command: Command, path: &str, name: &str) -> Command {
    // A text of the crate that the command comes from wins.
    let own = command.get_after_help().map(ToString::to_string);
    if let Some(text) = own.or_else(|| text_of(path)) {
        let line = |name: &str| format!("\n  {name} ");
        command = command.after_help(text.replace(&line("evenkeel"), &line(name)));
    }
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        add(below, path.trim_start(), name)
    })
}

#[cfg(test)]
pub(crate) mod tests;
