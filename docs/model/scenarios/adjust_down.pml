/* Two buyers, one unit, which is also to be taken out of sale. */
#define ATTEMPTS 2
#define ASKS_0 JUST_A
#define ASKS_1 JUST_B
#define ADJUST_DOWN
#include "../dropgate.pml"
