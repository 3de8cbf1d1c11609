package nodes

import "fmt"

// StateOfPuppet is the state that a detailed exit code of Puppet stands for: 0
// nothing to do, 2 changes made; all others are failures.
func StateOfPuppet(code int) State {
	switch code {
	case 0, 2:
		return State{State: Success}
	default:
		return State{State: Failed, Detail: fmt.Sprintf("exit code %d", code)}
	}
}

// StateOfExit is the state that an exit code of any other program stands for.
func StateOfExit(code int) State {
	if code == 0 {
		return State{State: Success}
	}
	return State{State: Failed, Detail: fmt.Sprintf("exit code %d", code)}
}
