#!/bin/sh
# What a host runs every few minutes, as such scripts are written: the program's
# name is all that was replaced. apply, validate and upgrade are stubs.
set -u
orchestrate="jorc --host $CONSUL_IP --port 8500 --prefix= --cluster="

run_puppet() {
	$orchestrate cache_services --file "$ROOT/services.yaml"
	"$ROOT/apply"
	ret_code=$?
	$orchestrate update_own_status puppet $ret_code
	if [ $ret_code -eq 1 ] || [ $ret_code -eq 4 ] || [ $ret_code -eq 6 ]; then
		echo "puppet failed with return code $ret_code"
		exit 1
	fi
}

validate_service() {
	"$ROOT/validate"
	ret_code=$?
	$orchestrate update_own_status validation $ret_code
	if [ $ret_code -ne 0 ]; then
		echo "validation failed with return code $ret_code"
		exit 1
	fi
}

$orchestrate pending_update
rv=$?

case $rv in
0)
	pending_version=$($orchestrate current_version)
	echo "upgrading to $pending_version"
	"$ROOT/upgrade" "$pending_version"
	run_puppet
	validate_service
	$orchestrate local_version "$pending_version"
	;;
1)
	run_puppet
	validate_service
	;;
2)
	echo "no clue"
	;;
3)
	echo "just getting started"
	;;
*)
	echo "wrong usage"
	exit $rv
	;;
esac
$orchestrate local_health || run_puppet
$orchestrate update_own_info
