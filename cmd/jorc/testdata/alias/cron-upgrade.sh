#!/bin/bash
# What cron runs on a host of the old system: it calls the Python module. puppet, run-parts, apt-get
# and consul are stubs.
orchestrate() { python -m jiocloud.orchestrate --host "$CONSUL_IP" --discovery_token="$token" "$@"; }
token=$(cat "$ROOT/token")

run_puppet() {
	puppet apply --detailed-exitcodes --config_version='python -m jiocloud.orchestrate current_version' /etc/puppet/site.pp
	code=$?
	orchestrate update_own_status puppet_service $code
	orchestrate update_own_status puppet $code
	if [[ $code = 1 || $code = 4 || $code = 6 ]]; then
		orchestrate update_own_status validation_service 1
		exit 1
	fi
}

orchestrate pending_update
case $? in
0)
	pending=$(orchestrate current_version)
	echo "upgrade to $pending"
	run_puppet
	orchestrate publish_service
	;;
1) echo "up to date" ;;
2) echo "Consul is unreachable" ;;
3)
	echo "nothing triggered"
	run_puppet
	;;
*) exit 99 ;;
esac

orchestrate check_puppet
[ $? -eq 9 ] && { echo "puppet is disabled"; exit 0; }

failing=$(orchestrate local_health -v)
if [ $? -ne 0 ]; then
	echo "repair: $failing"
	run_puppet
fi

run-parts --exit-on-error /usr/lib/jiocloud/tests
code=$?
orchestrate update_own_status validation_service $code
orchestrate update_own_status validation $code
[ $code -eq 0 ] || exit 1
orchestrate local_version $pending
orchestrate update_own_info
