"""What requests to vLLM state, in process or to a server, so that no default shapes a result."""

MAX_CANDIDATES = 128  # vLLM's limit on logprob_token_ids of a request
NEUTRAL = {
    "n": 1,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "watermarking": False,
    "ignore_eos": True,  # the stop ids are the dialect's alone
    "min_tokens": 0,
}
