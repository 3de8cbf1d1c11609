# cluster-utilities of jorc: for POSIX shells.

# End this task: it is done, and the host must reboot before the next one.
jorc_reboot() { [ $# -eq 0 ] || printf '%s\n' "$*"; exit "$JORC_EXIT_REBOOT"; }

# End this task: it is done, and the tasks after it are not to be run.
jorc_stop() { [ $# -eq 0 ] || printf '%s\n' "$*"; exit "$JORC_EXIT_STOP"; }

# End this task: something is missing; it is run again later, and has not failed.
jorc_not_yet() { [ $# -eq 0 ] || printf '%s\n' "$*"; exit "$JORC_EXIT_NOT_YET"; }

# jorc_param KEY [DEFAULT]: a param of this member as it is now, strings without quotes.
# (The .Param of the template is as of the job's creation.)
jorc_param() {
	if [ $# -gt 1 ]; then
		jorc cluster profile get --effective --raw --node "$JORC_NODE" --default "$2" "$1"
	else
		jorc cluster profile get --effective --raw --node "$JORC_NODE" "$1"
	fi
}

# jorc_set_param KEY VALUE, jorc_add_param KEY VALUE (only if absent: fails with
# 4 when somebody was first), jorc_remove_param KEY: params of the cluster.
jorc_set_param() { jorc cluster profile set "$1" "$2"; }
jorc_add_param() { jorc cluster profile add "$1" "$2"; }
jorc_remove_param() { jorc cluster profile remove "$1"; }

# jorc_members [FILTER]: the names of the members, one per line.
jorc_members() {
	if [ $# -gt 0 ]; then
		jorc cluster members -o plain --fields Node --filter "$1"
	else
		jorc cluster members -o plain --fields Node
	fi
}

# jorc_is_leader: whether this node leads its cluster.
jorc_is_leader() { jorc cluster leader -o plain | cut -f 1 | grep -Fqx -- "$JORC_NODE"; }
