//! What a lab says once it is up.

use super::LabArgs;
use crate::{
    control::Orders as _,
    directory,
    running::{Lab, Presence},
};
use evenkeel_kube_values::terminal::table;
use std::path::Path;

/// What a new lab says. `args` are repeated where other commands need them to find it.
pub(super) fn welcome(lab: &Lab, args: &LabArgs) -> String {
    let kubectl = format!("kubectl --kubeconfig {}", lab.kubeconfig().display());
    let command = if args.dir == Path::new(directory::DEFAULT) {
        "evenkeel lab".to_owned()
    } else {
        format!("evenkeel lab --dir {}", args.dir.display())
    };
    let names = lab.node_names();
    let (cut, kill) = (
        names.get(1).unwrap_or(&names[0]),
        names.last().unwrap_or(&names[0]),
    );
    let install = (lab.settings().evenkeel == Presence::Installable).then(|| {
        let kubeconfig = lab.kubeconfig();
        // Nodes have the label of their zone where --zones gave them one.
        let zone = if args.zones.is_none() {
            " --zone-default shore"
        } else {
            ""
        };
        let flags = format!(
            "--kubeconfig {} --mode act --profile edge{zone}",
            kubeconfig.display()
        );
        (format!("evenkeel install {flags}"), "what this lab is made for")
    });
    let ours = if install.is_some() {
        ""
    } else {
        ",zonehealth,zonereports"
    };
    let rows = [
        (
            format!("{kubectl} get nodes,pods,endpointslices{ours} -A -o wide"),
            "",
        ),
        (format!("{kubectl} apply -f your-app.yaml"), ""),
        (format!("{command} watch"), "live table"),
        (format!("{command} cut {cut}"), "its cloud link"),
        (format!("{command} kill {kill}"), "its power"),
        (format!("{command} heal"), "repair everything"),
    ];
    let rows = install.into_iter().chain(rows);
    let rows = rows.map(|(command, note)| {
        [
            command,
            if note.is_empty() {
                String::new()
            } else {
                format!("# {note}")
            },
        ]
    });
    format!(
        "\n{}\n{}Ctrl-C ends the lab.\n",
        lab.status(),
        table(&rows.collect::<Vec<_>>())
    )
}
