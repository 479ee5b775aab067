#!/bin/sh
# Tests total.sh.
failed=0
check() { # NAME ORDER SUM
	got=$(printf "$2" | sh total.sh)
	if [ "$got" = "$3" ]; then
		echo "ok    $1"
	else
		echo "FAIL  $1: got $got, want $3"
		failed=1
	fi
}
check 'empty order' '' 0
check 'two items' 'tea 2 3\nmilk 1 2\n' 8
check 'no newline at the end' 'tea 2 3\nmilk 1 2' 8
exit $failed
