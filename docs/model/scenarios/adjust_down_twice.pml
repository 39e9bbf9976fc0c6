/* The only unit is to be taken out of sale while its buyer may reserve and cancel it; the operator and the keeper
   both work on it. */
#define CANCEL_A 1
#define ADJUST_DOWN
#define TWO_ADJUSTERS
#include "../dropgate.pml"
