package replace

const limitEnv = "JORC_TEST_REPLACE_LIMIT"

func limitMain() int { return 0 }
