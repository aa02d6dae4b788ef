"""A judge as a reward of other models' training: TRL's GRPO and RLOO, verl, and the best of several responses."""

from judgetrain.extras.judge_reward.groups import Group, scalars
from judgetrain.extras.judge_reward.reward import Best, JudgeReward, best_of_n
from judgetrain.extras.judge_reward.verl import compute_score, compute_scores

__all__ = ["Best", "Group", "JudgeReward", "best_of_n", "compute_score", "compute_scores", "scalars"]
