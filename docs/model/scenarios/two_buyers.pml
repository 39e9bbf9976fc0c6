/* Two buyers, one unit. The winner may cancel at any time, and then the unit is free again. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define CANCEL_A 1
#include "../dropgate.pml"
