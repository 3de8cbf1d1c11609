package runs

const crashEnv = "JORC_TEST_RUNS_CRASH"

func crashMain() int { return 0 }
