package converge

const crashEnv = "JORC_TEST_CONVERGE_CRASH"

func crashMain() int { return 2 }
